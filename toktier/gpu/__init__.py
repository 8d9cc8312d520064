"""The GPU engine: the same relation, evaluated for all characters of a text at once.

From a family to ids on a device: ``tables`` has what was derived in the form that kernels read, with ``rewriting`` for
normalizers, ``matcher`` for split patterns and ``vocabulary`` for the model; ``kernels/`` work on it; ``encoder`` takes
a request through them on a ``device``; ``engine`` is what others see; and ``offload`` decides which texts are worth it.

None of this has names to be imported: it is used by way of ``tok.engine("gpu")`` and
:meth:`toktier.Tokenizer.encode_on_device`. ``docs/gpu.md`` says how it works.
"""
