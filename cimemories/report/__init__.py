"""Reports: a run, or several beside each other, as one file that can be read, printed and cited without the app.

    report = collect(flows, scopes, made=datetime.now(UTC))    # blocks of text, tables and figures (document.py)
    html = as_html(report)                                     # one file, nothing fetched, nothing executed
    write_report(report, Path("report.md"))                    # the same as Markdown with its figures beside it

Both forms of a report show the same blocks, so nothing is said in one and left out of the other.
"""
