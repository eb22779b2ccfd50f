"""Reports: a run, or several beside each other, as one file that can be read, printed and cited without the app.

    found = collect(flows, scopes, made=datetime.now(UTC))     # blocks of words, tables and figures (document.py)
    text = as_html(found)                                      # one file, nothing fetched, nothing executed
    write(found, Path("report.md"))                            # the same as Markdown with its figures beside it

Both forms show the same blocks, so nothing is said in one and left out of the other.
"""
