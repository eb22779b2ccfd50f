"""The benchmark as a task of Inspect (docs/inspect.md): `inspect eval cimemories/cimemories --model ...`."""
