"""Settings of the whole suite: the event loop and the hypothesis profiles."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Deadlines measure the machine, not the code. `derandomize` makes a red run red again for whoever looks
# into it; the profile "search" (HYPOTHESIS_PROFILE=search) looks for new counterexamples instead.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=100)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile(
    "search",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Every async test runs on asyncio, the loop that the engine runs on."""
    return "asyncio"
