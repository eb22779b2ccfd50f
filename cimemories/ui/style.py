"""The classes behind ui.safe. Colours mean one thing; every one of them stands with a glyph or a word.

Text takes the theme's own colour, tints are translucent: the same rules serve the light and the dark theme.
"""

NECESSARY = "#009E73"
INAPPROPRIATE = "#D55E00"
AMBIGUOUS = "#E69F00"
MODEL = "#0072B2"
SIMULATED = "#8E5BD0"

STYLE = f"""
[data-testid="stMainBlockContainer"] {{ padding: 3.75rem 2.5rem 4rem; }}
[data-testid="stElementToolbar"] {{ top: 2px !important; opacity: 0; }}
[data-testid="stFullScreenFrame"]:hover [data-testid="stElementToolbar"] {{ opacity: 1; }}
.stPlotlyChart text[style*="fill: rgb(127, 128, 129)"] {{ fill: currentColor !important; }}
.ci-head h2 {{ font-size: 1.55rem; font-weight: 650; margin: 0; padding: 0; display: inline; letter-spacing: -0.01em; }}
.ci-head p {{ margin: 0.25rem 0 0; font-size: 1rem; opacity: 0.8; max-width: 110ch; }}
.ci-line {{ line-height: 1.5; overflow-wrap: anywhere; }}
.ci-muted {{ opacity: 0.72; font-size: 0.875rem; line-height: 1.45; overflow-wrap: anywhere; }}
.ci-heading {{ font-size: 1.1rem; font-weight: 650; margin: 0; padding: 0.25rem 0; overflow-wrap: anywhere; }}
.ci-fold summary {{ cursor: pointer; list-style: none; }}
.ci-fold summary::-webkit-details-marker {{ display: none; }}
.ci-fold[open] .ci-more {{ display: none; }}
.ci-more {{ color: {MODEL}; font-size: .8125rem; font-weight: 400; margin-left: 4px; white-space: nowrap; }}
.ci-message {{ white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.65; font-size: 1rem; max-width: 78ch;
  padding: 12px 16px; border: 1px solid rgba(128,128,128,.28); border-radius: 6px; }}
mark[class^="ci-"] {{ color: inherit; padding: 1px 1px; border-radius: 2px; }}
mark.ci-leaked {{ background: rgba(213,94,0,.24); border-bottom: 2px solid {INAPPROPRIATE}; }}
mark.ci-conveyed {{ background: rgba(0,158,115,.22); border-bottom: 2px solid {NECESSARY}; }}
mark.ci-ambiguous {{ background: rgba(230,159,0,.24); border-bottom: 2px dashed {AMBIGUOUS}; }}
mark.ci-opens::before {{ font-size: .7em; font-weight: 700; line-height: 1; margin-right: 3px; padding: 1px 4px;
  border-radius: 3px; color: #111; vertical-align: 1px; }}
mark.ci-leaked.ci-opens::before {{ content: "X"; background: #F08A45; }}
mark.ci-conveyed.ci-opens::before {{ content: "N"; background: #37C49B; }}
mark.ci-ambiguous.ci-opens::before {{ content: "?"; background: {AMBIGUOUS}; }}
.ci-chip {{ display: inline-block; font-size: .8125rem; line-height: 1.3; padding: 1px 8px; border-radius: 4px;
  border: 1px solid rgba(128,128,128,.5); white-space: nowrap; }}
.ci-chip.ci-necessary {{ background: rgba(0,158,115,.18); border-color: {NECESSARY}; }}
.ci-chip.ci-inappropriate {{ background: rgba(213,94,0,.18); border-color: {INAPPROPRIATE}; }}
.ci-chip.ci-ambiguous {{ background: rgba(230,159,0,.18); border-color: {AMBIGUOUS}; }}
.ci-chip.ci-none {{ opacity: .75; border-style: dashed; }}
.ci-chip.ci-simulated {{ background: {SIMULATED}; border-color: {SIMULATED}; color: #fff; font-weight: 600; }}
.ci-head .ci-chip {{ margin-left: 12px; vertical-align: 5px; }}
.ci-notice, .ci-error, .ci-empty {{ padding: 10px 14px; border-radius: 6px; line-height: 1.5; overflow-wrap: anywhere;
  border: 1px solid rgba(128,128,128,.3); border-left: 4px solid rgba(128,128,128,.8); }}
.ci-error {{ border-left-color: {INAPPROPRIATE}; }}
.ci-error b, .ci-empty b {{ display: block; }}
.ci-empty {{ border-left-color: {MODEL}; padding: 16px 20px; max-width: 78ch; }}
dl.ci-facts {{ padding: 0 !important; }}
.ci-facts {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; font-size: .9375rem; }}
.ci-facts dt {{ opacity: .7; font-weight: 400; }}
.ci-facts dd {{ margin: 0; overflow-wrap: anywhere; }}
.ci-grid {{ border-collapse: collapse; width: 100%; font-size: .9375rem; }}
.ci-grid th {{ text-align: left; font-weight: 600; font-size: .8125rem; opacity: .75; }}
.ci-grid th, .ci-grid td {{ padding: 4px 12px 4px 0; border: 0; border-bottom: 1px solid rgba(128,128,128,.22);
  vertical-align: top; overflow-wrap: anywhere; }}
.ci-grid tr.ci-chosen td {{ background: rgba(0,114,178,.16); }}
.ci-grid td.ci-key {{ width: 22%; }}
.ci-grid td.ci-value {{ width: 20%; }}
.ci-grid td.ci-event {{ width: 15%; opacity: .75; }}
.ci-number, .ci-grid th.ci-number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.ci-grid td.ci-number {{ white-space: nowrap; }}
.ci-votes {{ font-size: .875rem; }}
.ci-votes td {{ padding: 2px 8px 2px 0; border: 0; white-space: nowrap; }}
.ci-votes td:last-child {{ white-space: normal; width: 172px; padding-right: 0; }}
.ci-mark {{ display: inline-block; width: 16px; height: 20px; line-height: 20px; margin-right: 1px; text-align: center;
  border-radius: 3px; font-size: .75rem; font-weight: 700; color: #111; }}
.ci-mark.ci-necessary {{ background: #37C49B; }}
.ci-mark.ci-inappropriate {{ background: #F08A45; }}
.ci-mark.ci-abstain {{ background: #F3C259; }}
.ci-mark.ci-missing {{ color: inherit; border: 1px dashed rgba(128,128,128,.8); line-height: 18px; }}
[data-testid="stColumn"]:has(> div > div .stBidiComponent) {{ position: sticky; top: 3.75rem; align-self: start; }}
.st-key-pair {{ gap: .6rem; }}
.st-key-pair .ci-heading {{ padding-top: .4rem; }}
.ci-lines > div {{ margin-top: 4px; }}
.ci-document {{ max-width: 78ch; line-height: 1.55; }}
.ci-point {{ padding-left: 1.4em; position: relative; }}
.ci-point::before {{ content: "\\2013"; position: absolute; left: .4em; }}
.ci-gap {{ height: .6em; }}
[data-stale="true"]:has(.stBidiComponent) {{ opacity: 1 !important; }}
"""
