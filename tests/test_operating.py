"""The page about operating names what there is: all metrics, with their labels; all errors; nothing else."""

from __future__ import annotations

import inspect
import pathlib
import re

import pytest

import toktier
from toktier import SessionStore, errors
from toktier.metrics import Metric, collect
from toktier.verify import ShadowVerifier

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "operating.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| `(toktier_\w+)` \| (\w+), [\w ]+ \| ([\w, ]+) \|", re.MULTILINE)
"""Of the table of metrics: name, type and labels; the unit stands behind the type."""

(ALERTS,) = re.findall(r"```yaml\ngroups:.*?```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    """All that are exported, of a tokenizer that has met everything that is counted."""
    tok = toktier.load("toktier-mini")
    store = SessionStore(tok, engine="memo")
    with ShadowVerifier(tok, quarantine=None) as verifier:
        for text in ("A transcript. " * 100, "A transcript. " * 101):
            store.encode(text, session="a")
        return {metric.name: metric for metric in collect(tok, store, verifier)}


def test_the_table_has_every_metric_with_its_type_and_labels(metrics: dict[str, Metric]) -> None:
    shown = {name: (kind, set(labels.split(", "))) for name, kind, labels in ROW.findall(PAGE)}
    assert shown == {
        name: (metric.kind, {label for sample in metric.samples for label in sample.labels})
        for name, metric in metrics.items()
    }


def test_alerts_are_about_metrics_and_labels_that_there_are(metrics: dict[str, Metric]) -> None:
    named = {name.removesuffix("_bucket") for name in re.findall(r"toktier_\w+", ALERTS)}
    assert named <= metrics.keys()
    for name, labels in re.findall(r"(toktier_\w+){([^}]*)}", ALERTS):
        samples = metrics[name.removesuffix("_bucket")].samples
        for label, value in re.findall(r'(\w+)="(\w+)"', labels):
            assert value in {sample.labels[label] for sample in samples}, (name, label, value)


def test_every_error_has_a_row_that_says_what_to_do() -> None:
    defined = {name for name, it in vars(errors).items() if inspect.isclass(it) and issubclass(it, errors.ToktierError)}
    shown = re.findall(r"^\| `([A-Z]\w+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted(defined - {"ToktierError"})
