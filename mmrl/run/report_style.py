"""Style of `report.html`, in the colours that the browser prefers, light or dark."""

_DARK = """--ink:#e6e6e6;--soft:#a5a5a5;--paper:#16181b;--line:#3a3d42;--grid:#303338;--box:#1f2226;
--up:#5fd08a;--down:#ff8f85;color-scheme:dark"""

STYLE = f"""
:root{{--ink:#1a1a1a;--soft:#555;--paper:#fff;--line:#ddd;--grid:#e4e4e4;--box:#f6f6f6;
--up:#0a7d33;--down:#b3261e;color-scheme:light}}
@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}
body{{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1080px;
margin:2rem auto;padding:0 1rem}}h1{{font-size:1.6rem}}h2{{font-size:1.15rem;margin-top:2.2rem}}
h3{{font-size:1rem;margin:1.2rem 0 .4rem}}
.plots{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:1rem}}
figure{{margin:0;border:1px solid var(--line);border-radius:6px;padding:.6rem}}
figcaption{{font-weight:600;margin-bottom:.3rem}}figure svg{{width:100%;height:auto;display:block}}
svg text{{fill:var(--ink)!important}}svg [style*="fill: #ffffff"]{{fill:none!important}}
svg [style*="stroke: #000000"]{{stroke:var(--soft)!important}}
svg [style*="stroke: #e4e4e4"]{{stroke:var(--grid)!important}}
table{{border-collapse:collapse;display:block;overflow-x:auto}}
td,th{{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;
white-space:nowrap}}td:first-child,th:first-child{{text-align:left}}
.up{{color:var(--up)}}.down{{color:var(--down)}}
.mean td{{font-weight:600;border-top:1px solid var(--soft)}}
.task{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(280px,100%),1fr));gap:1rem}}
.task h2{{grid-column:1/-1;margin-bottom:0}}img{{max-width:100%}}
.note{{color:var(--soft);font-size:.9rem}}pre{{background:var(--box);padding:1rem;overflow:auto}}summary{{cursor:pointer}}
.samples .words{{text-align:left;white-space:normal}}
.samples .words div{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:16rem;overflow:auto;
min-width:12rem;max-width:26rem}}.samples img{{image-rendering:pixelated;display:block}}
.samples .score{{color:#111;font-variant-numeric:tabular-nums}}
.trace span{{color:#111;border-radius:3px}}
"""
