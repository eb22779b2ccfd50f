"""Evaluation: the memory in the prompt, responses, judgements, and the runs that hold them together."""
