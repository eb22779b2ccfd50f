"""CIMemories Studio: curate, audit, run and explore the CIMemories benchmark of contextual integrity."""

__version__ = "0.1.0"
