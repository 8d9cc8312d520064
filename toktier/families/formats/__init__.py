"""Tokenizers that are not written as a ``tokenizer.json``: rank files, ``tekken.json``, ``vocab.json`` and the like.

Two libraries define what such files mean. What ``transformers`` builds from a vocabulary and a list of merges is
written down as the ``tokenizer.json`` that it would save (:mod:`~toktier.families.formats.pair`), and is read like any
other. Ranks are what tiktoken encodes with, so there it is the reference, and questions about patterns go to it:

* :mod:`~toktier.families.formats.ranked` is what every such source becomes, and its definition;
* :mod:`~toktier.families.formats.rankfile` and :mod:`~toktier.families.formats.tekken` read files;
* :mod:`~toktier.families.formats.patterns` has the split patterns by name, which rank files do not say;
* :mod:`~toktier.families.formats.fancy` is the dialect of these patterns;
* :mod:`~toktier.families.formats.probe` asks tiktoken what a character class contains.

:mod:`~toktier.families.formats.finding` tells what a file is, and which of a directory counts;
:mod:`~toktier.families.formats.objects` looks into the objects of ``transformers``.
"""
