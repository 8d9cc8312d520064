"""Chat templates: rendering, provenance and sessions of messages."""
