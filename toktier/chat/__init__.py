"""Chat templates: from messages to ids, with only what changed encoded again.

>>> import toktier
>>> from toktier.chat import ChatSession
>>> chat = ChatSession(toktier.load("toktier-mini"), "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
>>> patch = chat.update([{"role": "user", "content": "Hello"}])
>>> chat.text
'<|im_start|>Hello'
"""

from toktier.chat.session import ChatSession
from toktier.chat.template import ChatTemplate, Rendered

__all__ = [
    "ChatSession",
    "ChatTemplate",
    "Rendered",
]
