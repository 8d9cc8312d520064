"""What all tests share: how hypothesis searches, and the pages whose code blocks are tests."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

# "ci" draws the same examples on every run and on every machine, however slow: when it fails, the change
# is to blame, not luck. To look for new examples: pytest --hypothesis-profile=explore
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2_000)
settings.load_profile("ci")

# Each ```python block runs, and a block that starts with >>> is compared with its output. The blocks of a
# page share one namespace. `<!--- skip: next -->` before a block leaves it out.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE), SkipParser()],
    patterns=["README.md", "docs/*.md"],
).pytest()
