"""Templates in the styles of well-known ones, and conversations that make them do all they can."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any

from tests import material

CHATML = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

REASONING = """
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content ~ '\n\n' }}{%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(seeking=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- if ns.seeking and message.role == 'user' and not message.content.startswith('<tool_response>') %}
        {%- set ns.seeking = false %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content, thought = message.content, '' %}
        {%- if message.reasoning_content %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set before, mark, after = content.rpartition('</think>') %}
            {%- set content, thought = after.lstrip('\n'), before.split('<think>')[-1].strip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought %}
            {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
"""

HEADERS = """
{{- bos_token }}
{%- for message in messages %}
    {%- set header = '<|im_start|>' ~ message.role ~ '<|im_end|>' %}
    {%- set body %}{{ message.content | trim }}{{ '<|endoftext|>' }}{% endset %}
    {{- header ~ '\n\n' }}{{- body }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>%s<|im_end|>\n\n' % 'assistant' }}
{%- endif %}
"""

INSTRUCTIONS = """
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate, and message %d does not' % loop.index) }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system_message is defined %}
            {{- '[INST] %s\n\n%s [/INST]' % (system_message, message['content']) }}
        {%- else %}
            {{- '[INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""

GATHERED = """
{%- set ns = namespace(system_prompt='', out='', is_tool=false) %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {%- set ns.system_prompt = ns.system_prompt + ('\n\n' if ns.system_prompt else '') + message['content'] %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}{%- set ns.out = ns.out + '<|im_start|>' + message['content'] %}
    {%- elif message['role'] == 'assistant' %}
        {%- set content = message['content'] %}
        {%- if '</think>' in content %}{%- set content = content.partition('</think>')[2] %}{%- endif %}
        {%- set ns.out = ns.out + '<think>' + content + eos_token %}
        {%- for call in message['tool_calls'] or [] %}
            {%- set ns.out = ns.out + '<tool_call>' + call['function']['name'] + '\n```json\n' +
                (call['function']['arguments'] | tojson(indent=2)) + '\n```</tool_call>' %}
        {%- endfor %}
    {%- elif message['role'] == 'tool' %}
        {%- set ns.out = ns.out + '<tool_response>' + message['content'] + '</tool_response>' %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}{{- ns.system_prompt }}{{- ns.out }}
{%- if add_generation_prompt %}{{- '<think>' }}{%- endif %}
"""

MACROS = """
{%- macro text_of(content) -%}
    {%- if content is string -%}{{ content }}
    {%- else -%}{%- for part in content if part.type == 'text' -%}{{ part['text'] | trim }}{{ ' ' if not loop.last }}
    {%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- macro block(role, channel=none) -%}
<|im_start|>{{ role }}{% if channel %}<|endoftext|>{{ channel }}{% endif %}
{{ caller() }}<|im_end|>
{% endmacro -%}
{%- set header %}Date: {{ date_string | default('today') }}; tools: {{ (tools or []) | map(attribute='function.name') |
    join(', ') | upper }}{% endset -%}
{%- call block('system', 'analysis') %}{{ header }}{% endcall -%}
{%- for message in messages -%}
    {%- call block(message.role) -%}
        {%- filter trim %} {{ text_of(message.content) }} {% endfilter -%}
    {%- endcall -%}
    {%- if message.role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>%s' | format('assistant') }}{%- endif -%}
"""

EVERYTHING = """
{%- set names = {'user': 'Human', 'assistant': 'Robot'} -%}
{{ bos_token }}{{ '{}={:>4}{{'.format(messages | length, 7) }}
{%- for message in messages %}
{{ loop.cycle('<|im_start|>', '<|im_end|>') }}{{ names.get(message.role, message.role | title) }}:
    {%- set content = message.content %}
    {%- if content is not string %}{% set content = content | map(attribute='text') | join %}{% endif %}
    {{ content | replace('<b>', '<|endoftext|>') | indent(2) }}
    {{ content[:7] ~ '|' ~ content[-3:] ~ '|' ~ content[::-1] | first }}{{ content.splitlines() | last }}
    {{ content.rsplit(' ', 1)[-1].upper().removeprefix('A') * 2 + content.rpartition('x')[0] + ['a', 'b'] | join('-') }}
    {{ content.title() ~ content.replace('', '.', 2) ~ '%s%%%5.1f' % (content, loop.index) ~ 1.5 ~ none ~ true }}
    {{ content | string | length }}{{ message | tojson(sort_keys=true, separators=(',', ':')) }}{{ message.nothing }}
    {%- if loop.index > 4 %}{% break %}{% endif %}
{%- endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}
{{ (documents or []) | map(attribute='text') | join('\n') }}{{ '<|im_end|>' | safe }}
"""

STYLES = {
    "chatml": CHATML,
    "reasoning": REASONING,
    "headers": HEADERS,
    "instructions": INSTRUCTIONS,
    "gathered": GATHERED,
    "macros": MACROS,
    "everything": EVERYTHING,
}

SPECIAL = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of <b>a city</b> & "more", für heute',
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content, **more}


CALL = {
    "type": "function",
    "id": "call00001",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "exact": [True, None, {"x": "y"}]}},
}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [said("user", " How long is a day? \n")],
    "turns": [
        said("system", "Be brief.\n"),
        said("user", "Hi x"),
        said("assistant", " Hello \n"),
        said("user", "And?"),
    ],
    "reasoning": [
        said("user", "First\nquestion"),
        said("assistant", "<think>\nLet me see\n</think>\n\nAn answer"),
        said("user", "Next"),
        said("assistant", "An answer", reasoning_content="a reason"),
    ],
    "tools": [
        said("system", "You have tools."),
        said("user", "The weather?"),
        said("assistant", "", tool_calls=[CALL, CALL]),
        said("tool", "sunny", name="get_weather"),
        said("tool", "<tool_response> warm", name="get_weather"),
        said("assistant", "Sunny and warm."),
        said("user", "Thanks <b>a lot</b>"),
    ],
    "parts": [
        said("user", [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}, {"type": "image"}])
    ],
    "none": [said("user", "Hm", name=None), said("assistant", None, tool_calls=[CALL])],
}

CALLS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"tools": [WEATHER], "documents": [{"title": "Days", "text": "A day has 24 hours."}], "date_string": "1 May"},
]


@functools.cache
def all_templates() -> dict[str, str]:
    """The source of every template that is there, by a name."""
    found = dict(STYLES)
    for name in material.PRODUCTION:
        file = material.SHARED / "tokenizers" / name / "tokenizer_config.json"
        if file.is_file() and (source := json.loads(file.read_text(encoding="utf-8")).get("chat_template")):
            found[name] = source
    return found


@functools.cache
def library() -> Any:
    """The package ``transformers``, which takes seconds to import."""
    import transformers

    return transformers


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """Template, conversation, and the arguments of a call, all with all."""
    return list(itertools.product(all_templates(), CONVERSATIONS, CALLS))
