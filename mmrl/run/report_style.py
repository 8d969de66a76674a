"""Style and script of `report.html`: colours for light and dark, values under the pointer.

Both are in the page. The script reads what the page holds and loads nothing; without it the page
shows everything but the values under the pointer and the switch of the colours.
"""

_DARK = """--ink:#e6e6e6;--soft:#a5a5a5;--paper:#16181b;--line:#3a3d42;--grid:#303338;--box:#1f2226;
--up:#5fd08a;--down:#ff8f85;color-scheme:dark"""

STYLE = f"""
:root{{--ink:#1a1a1a;--soft:#555;--paper:#fff;--line:#ddd;--grid:#e4e4e4;--box:#f6f6f6;
--up:#0a7d33;--down:#b3261e;color-scheme:light}}
@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_DARK}}}}}
:root[data-theme=dark]{{{_DARK}}}
body{{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1080px;
margin:2rem auto;padding:0 1rem}}h1{{font-size:1.6rem}}h2{{font-size:1.15rem;margin-top:2.2rem}}
h3{{font-size:1rem;margin:1.2rem 0 .4rem}}#theme{{float:right;font:inherit;font-size:.9rem;
color:var(--ink);background:var(--box);border:1px solid var(--line);border-radius:6px;
padding:.2rem .7rem;cursor:pointer}}
.plots{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:1rem}}
figure{{margin:0;border:1px solid var(--line);border-radius:6px;padding:.6rem;position:relative}}
figcaption{{font-weight:600;margin-bottom:.3rem}}figure svg{{width:100%;height:auto;display:block}}
svg text{{fill:var(--ink)!important}}svg [style*="fill: #ffffff"]{{fill:none!important}}
svg [style*="stroke: #000000"]{{stroke:var(--soft)!important}}
svg [style*="stroke: #e4e4e4"]{{stroke:var(--grid)!important}}
svg .pointer{{stroke:var(--soft);stroke-width:.7;stroke-dasharray:2 2}}
.value{{position:absolute;pointer-events:none;font-size:.8rem;line-height:1.35;padding:.3rem .5rem;
background:var(--box);border:1px solid var(--line);border-radius:4px;white-space:pre;z-index:2;
max-width:90%;overflow:hidden;text-overflow:ellipsis}}
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
.bar{{display:flex;height:1.6rem;border-radius:6px;overflow:hidden;margin:.4rem 0}}
.bar div{{min-width:1px}}.key{{display:inline-block;width:.8em;height:.8em;border-radius:2px;
margin-right:.4em}}
"""

THEME = """
const root=document.documentElement,button=document.getElementById('theme');
try{const kept=localStorage.getItem('mmrl-theme');if(kept)root.dataset.theme=kept}catch(e){}
const dark=()=>root.dataset.theme?root.dataset.theme==='dark':
matchMedia('(prefers-color-scheme: dark)').matches;
const name=()=>{button.textContent=dark()?'light':'dark'};
button.onclick=()=>{root.dataset.theme=dark()?'light':'dark';name();
try{localStorage.setItem('mmrl-theme',root.dataset.theme)}catch(e){}};button.hidden=false;name();
"""

VALUES = """
const shown=v=>Math.abs(v)>=1e4||v&&Math.abs(v)<1e-3?v.toExponential(3):+v.toPrecision(4);
for(const figure of document.querySelectorAll('figure[data-curves]')){
const svg=figure.querySelector('svg'),curves=JSON.parse(figure.dataset.curves);
if(!svg||!svg.dataset.axes)continue;
const [left,right,top,bottom,low,high]=svg.dataset.axes.split(' ').map(Number);
const steps=[...new Set(curves.flatMap(c=>c.points.map(p=>p[0])))].sort((a,b)=>a-b);
const box=document.createElement('div');box.className='value';box.hidden=true;figure.append(box);
const line=document.createElementNS('http://www.w3.org/2000/svg','line');
line.setAttribute('class','pointer');svg.append(line);
const [, ,wide,tall]=svg.getAttribute('viewBox').split(' ').map(Number);
const hide=()=>{box.hidden=true;line.setAttribute('visibility','hidden')};hide();
figure.onpointerleave=hide;
figure.onpointermove=event=>{const frame=svg.getBoundingClientRect();
const share=(event.clientX-frame.left)/frame.width;
const wanted=low+(share-left)/(right-left)*(high-low);
const step=steps.reduce((a,b)=>Math.abs(b-wanted)<Math.abs(a-wanted)?b:a);
const x=left+(step-low)/(high-low)*(right-left);
for(const [k,v] of Object.entries({x1:x*wide,x2:x*wide,y1:top*tall,y2:bottom*tall}))
line.setAttribute(k,v);line.setAttribute('visibility','visible');
const rows=curves.map(c=>[c.name,c.points.find(p=>p[0]===step)]).filter(r=>r[1]);
box.textContent=['step '+step,...rows.map(([n,p])=>n+': '+shown(p[1]))].join('\\n');
box.hidden=false;const outer=figure.getBoundingClientRect();
let place=frame.left-outer.left+x*frame.width+12;
if(place+box.offsetWidth>outer.width)place-=box.offsetWidth+24;
box.style.left=Math.max(0,place)+'px';
box.style.top=Math.max(0,frame.top-outer.top+top*frame.height)+'px'}}
"""
