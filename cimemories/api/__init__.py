"""The Python API: what `import cimemories` offers to a notebook. Thin over the library: a number here is the number of
the page and of the command line (docs/api.md)."""
