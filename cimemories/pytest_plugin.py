"""The pytest plugin, which loads those of extras (cimemories/extras/).

pytest loads this module in every session of an environment with CIMemories Studio in it; `pytest -p no:cimemories` does
without it.
"""

from cimemories import extras

pytest_plugins = list(extras.registered("pytest").values())
