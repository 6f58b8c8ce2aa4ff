/* The timeline of a step: a row a rank, with zoom, micro-batch numbers, bubbles, and what an op is. The page and
 * `elapse report --interactive` have it. */
'use strict';
function formatNs(ns) {
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]])
    if (ns >= size)
      return `${(ns / size).toPrecision(ns / size >= 1000 ? 4 : 3)} ${unit}`;
  return `${ns} ns`;
}

const PASSES = {F: 'forward', B: 'backward', I: 'backward, input', W: 'backward, weights', R: 'forward again', Z: 'forward of frozen layers', C: 'cache read', P: 'cache write'};

class Timeline {
  static LEFT = 54;
  static ROW = 34;
  constructor(root) {
    const make = (tag, given = {}, ...children) => {
      const node = Object.assign(document.createElement(tag), given);
      node.append(...children);
      return node;
    };
    const button = (text, name, act) => {
      const node = make('button', {type: 'button', textContent: text, onclick: act});
      node.setAttribute('aria-label', name);
      return node;
    };
    this.replica = make('select', {onchange: () => this.fillRows()});
    this.legend = make('span', {className: 'legend', ariaHidden: 'true'});
    this.canvas = make('canvas', {tabIndex: 0});
    this.canvas.setAttribute('role', 'img');
    this.text = make('p', {className: 'hover'});
    this.text.setAttribute('aria-live', 'polite');
    root.classList.add('timeline');
    root.replaceChildren(
      make('div', {className: 'bar'}, make('label', {}, 'Pipeline ', this.replica), button('+', 'Zoom in', () => this.zoom(.6)),
           button('\u2212', 'Zoom out', () => this.zoom(1.6)), button('Whole step', 'Whole step', () => this.zoom(Infinity)), this.legend),
      this.canvas, this.text);
    this.view = {from: 0, to: 1};
    this.rows = [];
    this.drag = null;
    this.wire();
  }
  /* ops: {replica, rank, op, stage, microbatch, start, end} in ns since the begin of the step. */
  show(step, ops) {
    this.step = step;
    this.ops = ops;
    const replicas = [...new Set(ops.map((op) => op.replica))], before = this.replica.value;
    this.replica.replaceChildren(...replicas.map((r) => new Option(r, r)));
    if (before !== '' && replicas.includes(+before))
      this.replica.value = before;
    this.view = {from: 0, to: step.step_ns};
    const kinds = Object.keys(PASSES).filter((kind) => ops.some((op) => op.op === kind));
    this.legend.replaceChildren(...[...kinds.map((kind) => [kind, PASSES[kind]]), ['comm', 'messages, all-reduce'], ['other', 'update']].map(([kind, name]) => {
      const entry = document.createElement('span'), mark = document.createElement('i');
      mark.style.background = `var(--${kind})`;
      entry.append(mark, name);
      return entry;
    }));
    this.fillRows();
  }
  fillRows() {
    const replica = +this.replica.value, rows = [];
    for (const op of this.ops)
      if (op.replica === replica)
        (rows[op.rank] = rows[op.rank] || []).push(op);
    this.rows = Array.from(rows, (row) => row || []);
    this.canvas.setAttribute('aria-label', `Timeline of pipeline ${replica}: ${rows.length} ranks, step ${formatNs(this.step.step_ns)}, bubble ${(100 * this.step.bubble_fraction).toFixed(1)} per cent`);
    this.draw();
  }
  /* Passes fill the row; messages and all-reduces lie in a thin lane below them. */
  draw() {
    if (!this.step)
      return;
    const canvas = this.canvas, style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim() || {fg: '#222', soft: '#555', bg: '#fff'}[name];
    const width = canvas.clientWidth, height = this.rows.length * Timeline.ROW + 24, ratio = devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11px system-ui, sans-serif';
    const x = (ns) => Timeline.LEFT + (ns - this.view.from) / (this.view.to - this.view.from) * (width - Timeline.LEFT);
    const hatch = Timeline.hatched(colour('hatch'));
    this.rows.forEach((row, k) => {
      const y = k * Timeline.ROW + 3;
      g.fillStyle = hatch;
      g.fillRect(Timeline.LEFT, y, width - Timeline.LEFT, 20);
      for (const op of row) {
        if (op.end < this.view.from || op.start > this.view.to)
          continue;
        const pass = PASSES[op.op] !== undefined, from = Math.max(x(op.start), Timeline.LEFT), to = Math.min(x(op.end), width);
        const lane = pass || op.op === 'UPDATE' || op.op === 'NORM' ? [y, 20] : [y + 22, 5];
        g.fillStyle = colour(pass ? op.op : op.op === 'UPDATE' || op.op === 'NORM' ? 'other' : 'comm');
        g.fillRect(from, lane[0], Math.max(to - from - .5, .5), lane[1]);
        if (pass && to - from > 9 && op.microbatch >= 0) {
          const number = String(op.microbatch);
          if (g.measureText(number).width < to - from - 2) {
            g.fillStyle = '#fff';
            g.textAlign = 'center';
            g.fillText(number, (from + to) / 2, y + 14);
          }
        }
      }
      g.fillStyle = colour('bg');
      g.fillRect(0, k * Timeline.ROW, Timeline.LEFT, Timeline.ROW);
      g.fillStyle = colour('fg');
      g.textAlign = 'left';
      g.fillText(`rank ${k}`, 6, y + 14);
    });
    g.fillStyle = colour('soft');
    for (let i = 0; i <= 4; i++) {
      const ns = this.view.from + (this.view.to - this.view.from) * i / 4;
      g.textAlign = i === 0 ? 'left' : i === 4 ? 'right' : 'center';
      if (width > 500 || i % 2 === 0)
        g.fillText(formatNs(Math.round(ns)), i === 4 ? width - 4 : x(ns), height - 7);
    }
  }
  static hatched(colour) {
    const tile = Object.assign(document.createElement('canvas'), {width: 6, height: 6}), g = tile.getContext('2d');
    g.strokeStyle = colour;
    g.beginPath();
    for (const d of [-3, 3, 9]) {
      g.moveTo(d - 3, 6 + 3 - 3);
      g.lineTo(d + 3, 0);
    }
    g.stroke();
    return g.createPattern(tile, 'repeat');
  }
  zoom(factor, at = .5) {
    const span = this.view.to - this.view.from, all = this.step.step_ns;
    const next = Math.min(Math.max(span * factor, 1000), all), middle = this.view.from + span * at;
    this.view.from = Math.min(Math.max(middle - next * at, 0), all - next);
    this.view.to = this.view.from + next;
    this.draw();
  }
  move(share) {
    const span = this.view.to - this.view.from;
    this.view.from = Math.min(Math.max(this.view.from + span * share, 0), this.step.step_ns - span);
    this.view.to = this.view.from + span;
    this.draw();
  }
  hover(px, py) {
    const canvas = this.canvas;
    const ns = this.view.from + (px - Timeline.LEFT) / (canvas.clientWidth - Timeline.LEFT) * (this.view.to - this.view.from), k = Math.floor(py / Timeline.ROW);
    if (!this.rows[k] || px < Timeline.LEFT)
      return void (this.text.textContent = '');
    const inLane = py % Timeline.ROW > 24;
    const found = this.rows[k].filter((op) => op.start <= ns && ns < op.end);
    const op = found.find((one) => (PASSES[one.op] === undefined) === inLane) || found[0];
    const where = `rank ${k}, ${formatNs(Math.round(ns))}: `;
    this.text.textContent = where + (!op ? 'waits (bubble)' :
      `${op.op}${PASSES[op.op] ? ` (${PASSES[op.op]})` : ''}${op.microbatch >= 0 ? `, micro-batch ${op.microbatch}` : ''}, stage ${op.stage}, ${formatNs(op.end - op.start)} from ${formatNs(op.start)}`);
  }
  wire() {
    const canvas = this.canvas;
    const at = (event) => (event.offsetX - Timeline.LEFT) / (canvas.clientWidth - Timeline.LEFT);
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : .8, Math.min(Math.max(at(event), 0), 1));
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      this.drag = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointerup', () => this.drag = null);
    canvas.addEventListener('pointermove', (event) => {
      if (this.drag !== null) {
        this.move((this.drag - event.offsetX) / (canvas.clientWidth - Timeline.LEFT));
        this.drag = event.offsetX;
      }
      this.hover(event.offsetX, event.offsetY);
    });
    canvas.addEventListener('keydown', (event) => {
      const act = {'+': () => this.zoom(.7), '=': () => this.zoom(.7), '-': () => this.zoom(1.4), ArrowLeft: () => this.move(-.2), ArrowRight: () => this.move(.2),
                   0: () => this.zoom(Infinity)}[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
    addEventListener('resize', () => this.draw());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }
}
