"""The desk: where people decide pairs, settle disputes and audit judges by keyboard.

The browser holds the items that come next, answers every press at once, and sends what was decided to `/desk/NAME`
(`routes`), again and again until the record has it. A request is a `Message`, its answer a `Reply` (`protocol`). Desks
are `queue`, `disputes`, `audit`, and `labels` for the matrix and the list of one context. Nothing here needs Streamlit:
a page opens a desk and draws the component that talks to it (cimemories/ui/desk.py).
"""
