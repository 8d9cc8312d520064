"""What all tests share: a cache, how hypothesis searches, and the pages whose code blocks are tests."""

import os
import tempfile
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

import platformdirs
import pytest
from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser


def pytest_configure(config: pytest.Config) -> None:
    """A run has one cache, new and for all of its processes: nothing is known from before, nothing worked out twice."""
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist has the environment of the process that started it
    cache = tempfile.TemporaryDirectory(prefix="toktier-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(cache.cleanup)
    # What tests.public has fetched stays where it is.
    os.environ.setdefault("TOKTIER_TESTS_CACHE", platformdirs.user_cache_dir("toktier-tests"))
    os.environ["TOKTIER_TESTS_RUN"] = cache.name  # for tests.material
    os.environ["XDG_CACHE_HOME"] = cache.name  # for the default registry, where the platform goes by it


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
