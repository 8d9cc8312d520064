"""The figures of these pages, drawn from what the present code says of real tokenizers.

``python -m docs.figures``, in the root of the repository, draws all of them anew. Nothing in them is typed in: the ids
are the reference's, the cuts and matrices those of a :class:`toktier.Family`, the arrows those of an automaton. Each is
drawn twice, for a light and for a dark page.
"""
