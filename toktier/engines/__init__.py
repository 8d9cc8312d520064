"""What *encodes*: engines turn a text into ids, and all answer to one protocol (:mod:`toktier.engines.base`)."""
