"""What a tokenizer *is*: its definition, and the certified cuts that follow from it. Nothing here encodes.

The way through this room: ``reading`` reads a definition into ``definition``, stage by stage (``stages``); ``pattern``
parses its split patterns and ``automaton`` turns them into positions and a follow relation; ``probing`` asks the
reference library which characters each class contains, and ``alphabet`` partitions all code points into atoms. On these
there is a ``relation`` for each condition: ``literal`` for added tokens, ``normalization`` for normalizers,
``splitting`` for splitters, ``merging`` for what the model can join. ``synchronizing`` puts the four together;
``family`` is the result.
"""
