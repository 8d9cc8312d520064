"""What toktier relies on in vLLM and SGLang: read from their sources, and recorded.

Both need gigabytes and a GPU to be imported, so their sources are read and not run. What one version had lies beside
this file. To record another one, with the package installed or its wheel at hand (``pip download --no-deps vllm``)::

    python -m tests.integrations.signatures vllm
    python -m tests.integrations.signatures vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

from attrs import frozen

NEEDED = {
    "vllm": {
        "vllm/inputs/llm.py": ["_PromptOptions", "TextPrompt", "TokensPrompt"],
        "vllm/entrypoints/llm.py": ["LLM.generate"],
        "vllm/v1/engine/async_llm.py": ["AsyncLLM.generate"],
        "vllm/tokenizers/protocol.py": ["TokenizerLike.from_pretrained"],
        "vllm/tokenizers/registry.py": ["_TokenizerRegistry", "_TokenizerRegistry.register", "get_tokenizer"],
        "vllm/renderers/registry.py": ["RendererRegistry", "RendererRegistry.register"],
        "vllm/renderers/base.py": ["BaseRenderer.default_cmpl_tok_params", "BaseRenderer.default_chat_tok_params"],
    },
    "sglang": {
        "sglang/srt/managers/io_struct.py": ["GenerateReqInput"],
        "sglang/srt/entrypoints/engine.py": ["Engine.generate", "Engine.async_generate"],
        "sglang/srt/plugins/hook_registry.py": ["HookRegistry.register", "HookType"],
        "sglang/srt/managers/tokenizer_manager.py": ["TokenizerManager.init_tokenizer_and_processor"],
    },
}
"""By package and file: the classes, methods and functions."""


@frozen
class Signatures:
    """What one version of a package has.

    Attributes:
        package: Its name.
        version: Its version.
        source: What was read.
        definitions: By file and name: for a class its bases, its fields with their annotations and its constants; for a
            function its parameters, and the constants that it calls by name with what it returns.
    """

    package: str
    version: str
    source: str
    definitions: dict[str, dict[str, dict[str, Any]]]

    def named(self, file: str, name: str) -> dict[str, Any]:
        """What a class or function of a file has."""
        return self.definitions[file][name]

    def fields(self, file: str, name: str) -> dict[str, str]:
        """The fields of a class and of those of its bases that are in the same file, with their annotations."""
        found: dict[str, str] = {}
        for base in self.definitions[file].get(name, {}).get("bases", []):
            found |= self.fields(file, base)
        found |= self.definitions[file].get(name, {}).get("fields", {})
        return found

    def signature(self, file: str, name: str) -> inspect.Signature:
        """The signature of a function or method, to bind arguments to; ``self`` and ``cls`` are left out."""
        parameters = [
            inspect.Parameter(
                each["name"],
                getattr(inspect.Parameter, each["kind"]),
                default=inspect.Parameter.empty if each["default"] is None else each["default"],
            )
            for each in self.named(file, name)["parameters"]
        ]
        return inspect.Signature(parameters)


def recorded(package: str) -> Signatures:
    """What was recorded of a package."""
    return Signatures(**json.loads(_file(package).read_text(encoding="utf-8")))


def installed(package: str) -> Signatures | None:
    """What the installed package has; None if it is not installed."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = pathlib.Path(str(distribution.locate_file("")))
    return _read(package, distribution.version, f"{package} {distribution.version}, installed", _reader(folder))


def of_wheel(wheel: pathlib.Path) -> Signatures:
    """What a wheel has."""
    package, version, *_ = wheel.name.split("-")
    with zipfile.ZipFile(wheel) as archive:
        return _read(package, version, wheel.name, lambda name: archive.read(name).decode())


def record(signatures: Signatures) -> pathlib.Path:
    """Writes down what a version has, in the place of the one before."""
    file = _file(signatures.package)
    content = {name: getattr(signatures, name) for name in ("package", "version", "source", "definitions")}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return file


def _file(package: str) -> pathlib.Path:
    return pathlib.Path(__file__).with_name(f"{package}.json")


def _reader(folder: pathlib.Path) -> Callable[[str], str]:
    return lambda name: (folder / name).read_text(encoding="utf-8")


def _read(package: str, version: str, source: str, text_of: Callable[[str], str]) -> Signatures:
    definitions: dict[str, dict[str, dict[str, Any]]] = {}
    for file, names in NEEDED[package].items():
        tree = ast.parse(text_of(file))
        definitions[file] = {name: _described(_found(tree, name, file)) for name in names}
    return Signatures(package, version, source, definitions)


def _found(tree: ast.Module, name: str, file: str) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
    node: Any = tree
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [each for each in node.body if isinstance(each, kinds) and each.name == part]
        if not nodes:
            raise LookupError(f"{file} has no {name}: toktier relies on it")
        node = nodes[-1]  # the one behind its overloads
    return node  # type: ignore[no-any-return]


def _described(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, Any]:
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id: ast.unparse(each.annotation)
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        constants = {
            each.targets[0].id: ast.unparse(each.value)
            for each in node.body
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
        }
        return {"bases": [ast.unparse(base) for base in node.bases], "fields": fields, "constants": constants}
    calls = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and isinstance(each.value, ast.Call)]
    constants = {
        each.arg: repr(each.value.value)
        for call in calls
        for each in call.keywords
        if each.arg and isinstance(each.value, ast.Constant)
    }
    return {"parameters": _parameters(node.args), "constants": constants}


def _parameters(arguments: ast.arguments) -> list[dict[str, str | None]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    found = [
        _parameter(each, "POSITIONAL_OR_KEYWORD", default)
        for each, default in zip(positional, [*missing, *arguments.defaults], strict=True)
        if each.arg not in {"self", "cls"}
    ]
    if arguments.vararg:
        found.append(_parameter(arguments.vararg, "VAR_POSITIONAL", None))
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(_parameter(each, "KEYWORD_ONLY", default))
    if arguments.kwarg:
        found.append(_parameter(arguments.kwarg, "VAR_KEYWORD", None))
    return found


def _parameter(argument: ast.arg, kind: str, default: ast.expr | None) -> dict[str, str | None]:
    return {"name": argument.arg, "kind": kind, "default": None if default is None else ast.unparse(default)}
