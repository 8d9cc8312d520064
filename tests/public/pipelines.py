"""The pipelines of public tokenizers, as their published ``tokenizer.json`` has them, on small models.

Normalizer, pre-tokenizer, options of the model, added tokens and post-processor are the published ones; where hundreds
of added tokens are numbered places that are kept free, a hundred stand for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Model

from tests import builders
from tests.public import training
from tests.public.charsmap import charsmap, entries

GPT4 = builders.GPT4
QWEN2 = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN3_5 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_NOT_HAN = r"&&[^\p{Han}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(*, ending: str, but: str = "") -> str:
    """Words with the boundaries of camelCase."""
    first = r"[^\r\n\p{L}\p{N}]?"
    return f"{first}[{_UPPER}{but}]*[{_LOWER}{but}]+{ending}|{first}[{_UPPER}{but}]+[{_LOWER}{but}]*{ending}"


O200K = rf"{_cased(ending=_ENDING)}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
TEKKEN = rf"{_cased(ending='')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
KIMI = (
    rf"[\p{{Han}}]+|{_cased(ending=_ENDING, but=_NOT_HAN)}"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

FREE = 100
"""Numbered places kept free that stand for all of them."""


def special(*contents: str) -> list[AddedToken]:
    """Added tokens with the usual flags."""
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def plain(*contents: str, normalized: bool = False) -> list[AddedToken]:
    """Added tokens that are not special."""
    return [AddedToken(content, normalized=normalized) for content in contents]


def numbered(before: str, after: str, numbers: Iterable[int] = range(FREE)) -> list[str]:
    """Places kept free."""
    return [f"{before}{number}{after}" for number in numbers]


# On bytes


def byte_level(
    *splits: pre_tokenizers.PreTokenizer,
    added: Sequence[AddedToken],
    normalizer: normalizers.Normalizer | None = None,
    use_regex: bool = False,
    begin: str | None = None,
    model: Model | None = None,
) -> tokenizers.Tokenizer:
    """A byte-level BPE behind some splitters.

    Args:
        splits: What divides the text before ``ByteLevel``.
        added: The added tokens.
        normalizer: The normalizer.
        use_regex: Whether ``ByteLevel`` divides too.
        begin: The added token that the post-processor puts before a text.
        model: The model, when its options are not those of GPT-2.
    """
    tokenizer = tokenizers.Tokenizer(model or training.byte_level_model())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, last]) if splits else last
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(list(added))
    trimmed = processors.ByteLevel(trim_offsets=False)
    tokenizer.post_processor = processors.Sequence([trimmed, _before(tokenizer, begin)]) if begin else trimmed
    return tokenizer


def _before(tokenizer: tokenizers.Tokenizer, token: str) -> processors.PostProcessor:
    """Puts a special token before a text."""
    return processors.TemplateProcessing(f"{token} $A", special_tokens=[(token, tokenizer.token_to_id(token))])


def gpt2() -> tokenizers.Tokenizer:
    """GPT-2: ``ByteLevel`` alone, and an added token that is looked for behind the normalizer."""
    return byte_level(added=[AddedToken("<|endoftext|>", special=True, normalized=True)], use_regex=True)


def gpt4() -> tokenizers.Tokenizer:
    """GPT-4 (cl100k): what matches is kept, and nothing is left between."""
    added = special("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>")
    return byte_level(builders.split(GPT4, "removed", invert=True), added=added)


def gpt4o() -> tokenizers.Tokenizer:
    """GPT-4o (o200k)."""
    added = special("<|endoftext|>", "<|endofprompt|>")
    return byte_level(builders.split(O200K, "removed", invert=True), added=added)


def gpt_oss() -> tokenizers.Tokenizer:
    """gpt-oss (o200k_harmony)."""
    roles = ("return", "constrain", "channel", "start", "end", "message", "call")
    free = numbered("<|reserved_", "|>", (200000, 200001, 200004, *range(200009, 200012), *range(200013, 200018)))
    names = ["<|startoftext|>", "<|endoftext|>", *(f"<|{role}|>" for role in roles), *free, "<|endofprompt|>"]
    return byte_level(builders.split(O200K), added=special(*names), model=training.byte_level_model(ignore_merges=True))


def llama3() -> tokenizers.Tokenizer:
    """Llama 3: whole words of the vocabulary are tokens, whatever the merges."""
    names = "begin_of_text end_of_text start_header_id end_header_id eot_id"
    free = numbered("<|reserved_special_token_", "|>", range(251))
    added = special(*(f"<|{name}|>" for name in names.split()), *free)
    model = training.byte_level_model(ignore_merges=True)
    return byte_level(builders.split(GPT4), added=added, begin="<|begin_of_text|>", model=model)


def llama4() -> tokenizers.Tokenizer:
    """Llama 4: the pattern of o200k, the merges ignored for whole words."""
    names = (
        "begin_of_text end_of_text fim_prefix fim_middle fim_suffix header_start header_end eom eot step python_start "
        "python_end finetune_right_pad image_start image_end tile_x_separator tile_y_separator image patch "
        "reasoning_thinking_start reasoning_thinking_end"
    )
    kinds = ("text_post_train_", "vision_", "reasoning_", "")
    free = chain.from_iterable(numbered(f"<|{kind}reserved_special_token_", "|>") for kind in kinds)
    added = special(*(f"<|{name}|>" for name in names.split()), *free)
    model = training.byte_level_model(ignore_merges=True)
    return byte_level(builders.split(O200K), added=added, begin="<|begin_of_text|>", model=model)


QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_VISION = (
    *(f"<|{what}_{end}|>" for what in ("object_ref", "box", "quad", "vision") for end in ("start", "end")),
    *(f"<|{what}_pad|>" for what in ("vision", "image", "video")),
)
QWEN_TOOLS = ("<tool_call>", "</tool_call>", *(f"<|fim_{part}|>" for part in ("prefix", "middle", "suffix", "pad")))
QWEN_MORE = ("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def qwen2() -> tokenizers.Tokenizer:
    """Qwen1.5, Qwen2."""
    return byte_level(builders.split(QWEN2), added=special(*QWEN), normalizer=normalizers.NFC())


def qwen3() -> tokenizers.Tokenizer:
    """Qwen3: as Qwen2, with the tags of tools and thoughts as added tokens that are not special."""
    added = special(*QWEN, *QWEN_VISION) + plain(*QWEN_TOOLS, *QWEN_MORE)
    return byte_level(builders.split(QWEN2), added=added, normalizer=normalizers.NFC())


def qwen3_5() -> tokenizers.Tokenizer:
    """Qwen3.5, Qwen3.6: marks belong to words."""
    sounds = ("<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
    speech = ("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>")
    added = special(*QWEN, *QWEN_VISION) + plain(*QWEN_TOOLS, *QWEN_MORE) + special(*sounds, *speech)
    return byte_level(builders.split(QWEN3_5), added=added, normalizer=normalizers.NFC())


def _deepseek(added: Sequence[AddedToken]) -> tokenizers.Tokenizer:
    return byte_level(*map(builders.split, DEEPSEEK), added=added, normalizer=normalizers.Sequence([]))


DEEPSEEK_BEGIN = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
DEEPSEEK_FIM = ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>", "<｜Assistant｜>")
DEEPSEEK_TOOLS = (
    "<｜tool▁sep｜>",
    *(f"<｜tool▁{what}▁{side}｜>" for what in ("calls", "call", "outputs", "output") for side in ("begin", "end")),
)
DEEPSEEK_FREE = numbered("<｜place▁holder▁no▁", "｜>", range(800))


def deepseek_v3() -> tokenizers.Tokenizer:
    """DeepSeek V3, R1: three splitters one after the other."""
    tags = plain(*DEEPSEEK_FIM, *DEEPSEEK_TOOLS, normalized=True)
    end = AddedToken("<|EOT|>", special=True, normalized=True)
    return _deepseek([*special(*DEEPSEEK_BEGIN, *DEEPSEEK_FREE), *tags, end])


def deepseek_v4() -> tokenizers.Tokenizer:
    """DeepSeek V4: the same with more tags, some of which end in the middle of a word."""
    names = "begin▁sys end▁sys latest_reminder action query authority domain task title answer search read_url"
    parts = [f"<｜{side}▁of▁{what}｜>" for what in ("repo▁name", "file▁name", "file") for side in ("begin", "end")]
    tags = ["<|EOT|>", "<think>", "</think>", "｜DSML｜", "<dsml:", "</dsml:"]
    tags += [f"<｜{name}｜>" for name in names.split()]
    boxes = [f"<｜{slash}{shape}｜>" for shape in ("polygon", "point", "box", "ref") for slash in ("/", "")]
    table = ("<｜/table>｜", "<｜table｜>", *(f"<｜{slash}{cell}｜>" for cell in ("td", "tr") for slash in ("/", "")))
    pictures = ("<｜end_of_query｜>", "<｜rl_image_pad｜>", "<｜rl_image_start｜>", *boxes, "<｜image｜>")
    free = [f"<|place_holder_mm_span_{number:04}|>" for number in range(21, FREE)]
    return _deepseek(
        [
            *special(*DEEPSEEK_BEGIN, *DEEPSEEK_FREE, *free, *pictures),
            *plain(*DEEPSEEK_FIM, *DEEPSEEK_TOOLS, *parts, *tags, normalized=True),
            *plain(*table),
        ]
    )


def mistral() -> tokenizers.Tokenizer:
    """Mistral Nemo and later (tekken)."""
    names = "[INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG]"
    more = "<pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
    added = special("<unk>", "<s>", "</s>", *names.split(), *more.split(), *numbered("<SPECIAL_", ">", range(20, 1000)))
    model = training.byte_level_model(ignore_merges=True)
    return byte_level(builders.split(TEKKEN), added=added, begin="<s>", model=model)


def kimi() -> tokenizers.Tokenizer:
    """Kimi K2: Han characters by themselves, taken out of the letters by intersection."""
    names = (
        "[BOS] [EOS] <|im_end|> <|im_user|> <|im_assistant|> <|start_header_id|> <|end_header_id|> [EOT] <|im_system|> "
        "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> "
        "<|tool_call_end|> <|im_middle|> [UNK] [PAD]"
    )
    added = special(*names.split(), *numbered("<|reserved_token_", "|>", range(163600, 163838)))
    return byte_level(builders.split(KIMI), added=added)


def glm() -> tokenizers.Tokenizer:
    """GLM-4.5 and later."""
    roles = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
    first = special("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", *roles, "/nothink")
    media = chain.from_iterable(
        (f"<|begin_of_{kind}|>", f"<|end_of_{kind}|>") for kind in ("image", "video", "audio", "transcription")
    )
    code = (f"<|code_{part}|>" for part in ("prefix", "middle", "suffix"))
    tags = ("think", "tool_call", "tool_response", "arg_key", "arg_value")
    added = first + special(*media, *code)
    added += plain(*chain.from_iterable((f"<{tag}>", f"</{tag}>") for tag in tags))
    return byte_level(builders.split(GPT4), added=added)


def starcoder() -> tokenizers.Tokenizer:
    """StarCoder: every digit by itself, then the pattern of GPT-2."""
    names = (
        "<|endoftext|> <fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <filename> <gh_stars> <issue_start> "
        "<issue_comment> <issue_closed> <jupyter_start> <jupyter_text> <jupyter_code> <jupyter_output> <empty_output> "
        "<commit_before> <commit_msg> <commit_after> <reponame>"
    )
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level(digits, added=special(*names.split()), use_regex=True)


def phi() -> tokenizers.Tokenizer:
    """Phi-1.5, Phi-2 (CodeGen): GPT-2 with runs of spaces and tabs as added tokens, the longest first."""
    runs = [" " * n for n in range(31, 1, -1)] + ["\t" * n for n in range(9, 1, -1)]
    return byte_level(added=[*special("<|endoftext|>"), *plain(*runs, normalized=True)], use_regex=True)


def claude2() -> tokenizers.Tokenizer:
    """Claude 2, the last that was published: NFKC before the pattern of GPT-2."""
    added = special("<EOT>", "<META>", "<META_START>", "<META_END>", "<SOS>")
    return byte_level(added=added, normalizer=normalizers.NFKC(), use_regex=True)


# On characters


def _decoder(*after: decoders.Decoder) -> decoders.Decoder:
    return decoders.Sequence([decoders.Replace(training.SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *after])


def llama2() -> tokenizers.Tokenizer:
    """Llama 1, Llama 2, Mistral 7B: a space before every stretch of text, and nothing that divides it."""
    tokenizer = tokenizers.Tokenizer(training.sentencepiece_model())
    space = normalizers.Replace(" ", training.SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(training.SPACE), space])
    tokenizer.decoder = _decoder(decoders.Strip(" ", 1, 0))
    tokenizer.add_tokens(special("<unk>", "<s>", "</s>"))
    tokenizer.post_processor = _before(tokenizer, "<s>")
    return tokenizer


def gemma() -> tokenizers.Tokenizer:
    """Gemma 2, Gemma 3: no prefix; runs of line ends, spaces and tabs, and tags of HTML, are added tokens."""
    tokenizer = tokenizers.Tokenizer(training.sentencepiece_model())
    tokenizer.normalizer = normalizers.Replace(" ", training.SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = _decoder()
    first = special("<pad>", "<eos>", "<bos>", "<unk>") + plain("<mask>", "[multimodal]")
    turns = special("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>")
    runs = [c * n for c, least in (("\n", 1), (training.SPACE, 2), ("\t", 1)) for n in range(least, 32)]
    tags = (
        "table caption thead tbody tfoot tr th td h1 h2 h3 h4 h5 h6 blockquote strong em b i u s sub sup code a html "
        "body img span bbox ul li div iframe footer"
    )
    pairs = chain.from_iterable((f"<{tag}>", f"</{tag}>") for tag in tags.split())
    tokenizer.add_tokens([*first, *turns, *plain(*numbered("<unused", ">"), *runs, *pairs)])
    tokenizer.post_processor = _before(tokenizer, "<bos>")
    return tokenizer


def _bert(*, lowercase: bool) -> tokenizers.Tokenizer:
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer = tokenizers.Tokenizer(training.word_pieces(names, lowercase=lowercase))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_tokens(special(*names))
    ends = [(name, names.index(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def bert_cased() -> tokenizers.Tokenizer:
    """BERT, cased."""
    return _bert(lowercase=False)


def bert_uncased() -> tokenizers.Tokenizer:
    """BERT, uncased: lower case, and accents stripped."""
    return _bert(lowercase=True)


def t5() -> tokenizers.Tokenizer:
    """T5: a precompiled character map, words between whitespace with a space before them, Unigram."""
    tokenizer = tokenizers.Tokenizer(training.unigram(("<pad>", "</s>", "<unk>"), "<unk>"))
    tokenizer.normalizer = normalizers.Precompiled(charsmap(entries()))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_tokens(special("<pad>", "</s>", "<unk>", *numbered("<extra_id_", ">", range(99, -1, -1))))
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def mon() -> tokenizers.Tokenizer:
    """mon-tokenizer: patterns replaced, NFC, one space before every stretch, Unigram with bytes to fall back to."""
    names = ("<unk>", "<s>", "</s>", "<pad>")
    tokenizer = tokenizers.Tokenizer(training.unigram(names, "<unk>", byte_fallback=True))
    invisible, spaces = Regex(r"[\u00AD\u200B\u200C\u200D\u2060\uFEFF]"), Regex(r"\p{Zs}")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(invisible, ""), normalizers.Replace(spaces, " "), normalizers.NFC()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = _decoder(decoders.Strip(" ", 1, 0))
    tokenizer.add_tokens(special(*names))
    return tokenizer
