"""What a tokenizer *is*: its definition, and the certified cuts that follow from it. Nothing here encodes.

The way through this room: ``definition`` reads a ``tokenizer.json``; ``pattern`` parses its split patterns and
``automaton`` turns them into positions and a follow relation; ``probing`` asks the reference library which characters
each class contains, and ``alphabet`` partitions all code points into atoms; ``normalization`` says what the normalizer
may make of the two neighbours of a cut; ``synchronizing`` puts the three conditions together; ``family`` is the result.
"""
