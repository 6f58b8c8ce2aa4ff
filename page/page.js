/* The page: controls make a command line, the module answers it, the rest draws. No rule of planning is
 * here: each number comes from the program's answers. */
'use strict';
const $ = (id) => document.getElementById(id);

/* --- the question ----------------------------------------------------------------------------- */

/* key: of a job, given by --set. list: the program's words of that class. words: of that key. */
const CONTROLS = [
  {group: 'Model', id: 'model', label: 'Model (name:key=value also)', option: '--model', list: ['MODEL'], value: 'llama3-8b', wide: true},
  {group: 'Model', id: 'seq', label: 'Sequence, tokens', key: 'model.seq'},
  {group: 'Model', id: 'frozen', label: 'Frozen layers', option: '--frozen', hint: '0'},
  {group: 'Model', id: 'share', label: 'Timed freezing, mean share left out', key: 'freeze.max_share', hint: '0', wide: true},
  {group: 'Cluster', id: 'cluster', label: 'GPU or machine', list: ['DEVICE', 'CLUSTER'], value: 'h100', wide: true},
  {group: 'Cluster', id: 'nodes', label: 'Nodes', value: '2', hint: 'as the machine'},
  {group: 'Cluster', id: 'gpus', label: 'GPUs a node', value: '8', hint: 'as the machine'},
  {group: 'Cluster', id: 'link', label: 'Link of a GPU', key: 'cluster.link', hint: 'as the GPU'},
  {group: 'Cluster', id: 'uplink', label: 'Uplink of a node', key: 'cluster.uplink', hint: 'as the machine'},
  {group: 'Cluster', id: 'price', label: 'Price, GPU and hour', key: 'cluster.price', hint: 'none', wide: true},
  {group: 'Training', id: 'batch', label: 'Batch, samples', option: '--batch', value: '64'},
  {group: 'Training', id: 'dtype', label: 'Data type', key: 'train.dtype', words: true, value: 'bf16'},
  {group: 'Training', id: 'optimizer', label: 'Optimizer', key: 'train.optimizer.kind', words: true},
  {group: 'Training', id: 'framework', label: 'Framework', key: 'train.framework', words: true},
  {group: 'Layout (empty: searched)', id: 'K', label: 'K, pipeline length', key: 'pipeline.num_stages'},
  {group: 'Layout (empty: searched)', id: 'R', label: 'R, replicas', key: 'pipeline.num_replicas'},
  {group: 'Layout (empty: searched)', id: 'T', label: 'T, tensor', key: 'pipeline.tensor', together: true},
  {group: 'Layout (empty: searched)', id: 'M', label: 'M, micro-batches', key: 'pipeline.num_microbatches'},
  {group: 'Layout (empty: searched)', id: 'schedule', label: 'Schedule', key: 'pipeline.schedule', words: true, together: true},
  {group: 'Layout (empty: searched)', id: 'recompute', label: 'Recompute', key: 'pipeline.recompute', words: true, together: true},
  {group: 'Layout (empty: searched)', id: 'shard', label: 'Shard', key: 'pipeline.shard', words: true, together: true},
  {group: 'Layout (empty: searched)', id: 'work', label: 'Search: at most this many looks', option: '--work', hint: '10 s of time', wide: true},
];
/* The program searches these keys if a job names none of them. If one is fixed, the others are auto. */
const TOGETHER = ['pipeline.tensor', 'pipeline.shard', 'pipeline.expert', 'pipeline.sequence_parallel',
                  'pipeline.recompute', 'pipeline.schedule'];
const state = {};
let file = null; /* a dropped model: {name, text} */
let words = {}, keyWords = {}; /* of the program */

function commandArgs() {
  const args = ['plan'], sets = [];
  const set = (key, value) => sets.push('--set', `${key}=${value}`);
  const isKind = (words.DEVICE || []).includes(state.cluster);
  for (const control of CONTROLS) {
    const value = state[control.id];
    if (control.id === 'model')
      args.push('--model', value);
    else if (control.id === 'cluster')
      args.push('--cluster', isKind ? `${value}-${state.nodes || 1}x${state.gpus || 8}` : value);
    else if (control.id === 'nodes' && value && !isKind)
      set('cluster.nodes', value);
    else if (control.id === 'gpus' && value && !isKind)
      set('cluster.devices_per_node', value);
    else if (control.option && value)
      args.push(control.option, value);
    else if (control.key && value)
      set(control.key, value);
  }
  const named = CONTROLS.filter((control) => control.together && state[control.id]).map((control) => control.key);
  if (named.length > 0)
    for (const key of TOGETHER.filter((other) => !named.includes(other)))
      set(key, 'auto');
  return args.concat(sets);
}
const quoted = (word) => /^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
const commandLine = () => ['elapse', ...commandArgs()].map(quoted).join(' ');
const files = () => file ? {[`/${file.name}`]: file.text} : {};

/* The URL's hash holds what differs from the page's first question. */
function writeHash() {
  const params = new URLSearchParams();
  for (const control of CONTROLS)
    if (state[control.id] !== (control.value || ''))
      params.set(control.id, state[control.id]);
  if (file && file.text.length < 20000)
    params.set('file', JSON.stringify(file));
  history.replaceState(null, '', `#${params}`);
}
function readHash() {
  const params = new URLSearchParams(location.hash.slice(1));
  for (const control of CONTROLS)
    state[control.id] = params.get(control.id) ?? (control.value || '');
  try {
    file = params.has('file') ? JSON.parse(params.get('file')) : null;
  } catch {
    file = null;
  }
}

function makeControls() {
  const groups = {};
  for (const control of CONTROLS) {
    let group = groups[control.group];
    if (!group) {
      group = groups[control.group] = document.createElement('fieldset');
      group.append(Object.assign(document.createElement('legend'), {textContent: control.group}));
      $('controls').append(group);
    }
    const label = Object.assign(document.createElement('label'), {textContent: control.label});
    const input = document.createElement(control.words ? 'select' : 'input');
    label.className = control.wide ? 'wide' : '';
    input.id = control.id;
    if (control.list)
      input.setAttribute('list', `${control.id}-list`);
    if (!control.words) {
      input.placeholder = control.hint || 'auto';
      input.spellcheck = false;
    }
    input.addEventListener(control.words ? 'change' : 'input', () => {
      state[control.id] = input.value.trim();
      askSoon();
    });
    label.append(input);
    group.append(label);
    if (control.id === 'model')
      group.append(makeDrop());
  }
}

function makeDrop() {
  const drop = Object.assign(document.createElement('label'), {id: 'drop'});
  const input = Object.assign(document.createElement('input'), {type: 'file', id: 'model-file', accept: '.json'});
  drop.append('or drop a config.json (Hugging Face) here', input);
  input.addEventListener('change', () => input.files[0] && takeFile(input.files[0]));
  for (const [name, over] of [['dragover', true], ['dragleave', false], ['drop', false]])
    document.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle('over', over);
      if (name === 'drop' && event.dataTransfer.files[0])
        takeFile(event.dataTransfer.files[0]);
    });
  return drop;
}
async function takeFile(given) {
  file = {name: given.name.replace(/[^\w.-]/g, '_'), text: await given.text()};
  state.model = file.name;
  showState();
  ask();
}

/* The words of lists are the program's own: `elapse --help=rows`. */
function takeRows(text) {
  for (const row of text.split('\n').map((line) => line.split('\t'))) {
    if (row[0] === 'word')
      (words[row[1]] = words[row[1]] || []).push(row[2]);
    if (row[0] === 'key')
      keyWords[row[1]] = row[2].split(' ').filter((word) => word);
  }
  for (const control of CONTROLS) {
    const list = control.words ? $(control.id) : document.createElement('datalist');
    const items = control.words ? keyWords[control.key] || [] : (control.list || []).flatMap((name) => words[name] || []);
    if (control.words)
      list.append(new Option(control.group.startsWith('Layout') ? 'auto' : `default`, ''));
    for (const word of items.filter((item) => item !== 'auto'))
      list.append(new Option(word, word));
    if (control.list) {
      list.id = `${control.id}-list`;
      document.body.append(list);
    }
  }
}
function showState() {
  for (const control of CONTROLS)
    $(control.id).value = state[control.id];
}

/* --- the module ------------------------------------------------------------------------------- */

let compiled; /* WebAssembly.Module */
class Asker {
  constructor(onProgress) {
    this.onProgress = onProgress;
    this.waiting = null;
    this.spawn();
  }
  spawn() {
    this.worker = new Worker(URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'})));
    this.fresh = true;
    this.worker.onmessage = ({data}) => {
      if (data.progress !== undefined)
        return this.onProgress(data.progress);
      const {done} = this.waiting;
      this.waiting = null;
      if (data.failed) { /* the module is in no known state */
        this.worker.terminate();
        this.spawn();
      }
      done(data.failed ? [{code: 3, out: '', err: `the module stopped: ${data.failed}`, read: {}}] : data.answers);
    };
  }
  /* Ends the question before, which then never answers. */
  ask(runs) {
    if (this.waiting) {
      this.worker.terminate();
      this.waiting = null;
      this.spawn();
    }
    return new Promise((done) => {
      this.waiting = {done};
      this.worker.postMessage({module: this.fresh ? compiled : null, runs});
      this.fresh = false;
    });
  }
}

async function unpack() {
  const bytes = Uint8Array.from(atob($('module').textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* --- asking ----------------------------------------------------------------------------------- */

let main, sweeper, runner, soon, timeline;
let shown = null; /* the answer on the page: {plan, step, ops} */

function say(text, bad) {
  $('status').textContent = text;
  $('status').classList.toggle('bad', Boolean(bad));
}
const firstLines = (err) => err.split('\n').map((line) => line.replace(/^elapse: /, '')).join('\n');

function askSoon() {
  clearTimeout(soon);
  soon = setTimeout(ask, 200);
}
async function ask() {
  clearTimeout(soon);
  writeHash();
  $('line').textContent = commandLine();
  $('result').classList.add('stale');
  $('busy').hidden = false;
  say('Searching');
  const begun = performance.now();
  const found = await main.ask([{args: [...commandArgs(), '--json', '-o', '/plan.json'], files: files(), read: ['/plan.json']}]);
  if (found[0].code !== 0)
    return fail(found[0]);
  const plan = JSON.parse(found[0].out);
  const step = ['sim', '/job.json', '--step', '--plan', '/plan.json', '--no-wall'];
  const stepped = await main.ask([
    {args: [...step, '--json', '--ops', '/ops.csv'], files: {...files(), ...found[0].read, '/job.json': JSON.stringify(plan.job)}, read: ['/ops.csv']},
    {args: step},
  ]);
  const bad = stepped.find((answer) => answer.code !== 0);
  if (bad)
    return fail(bad);
  shown = {plan, step: JSON.parse(stepped[0].out), ops: parseOps(stepped[0].read['/ops.csv'])};
  $('busy').hidden = true;
  $('result').hidden = $('sweep-part').hidden = $('run-part').hidden = false;
  $('run').replaceChildren();
  $('result').classList.remove('stale');
  const searched = plan.searched && plan.searched.complete === false ? '; the search reached its budget, a longer one may find more' : '';
  say(`${plan.candidates.toLocaleString('en')} plans compared in ${formatNs((performance.now() - begun) * 1e6)}${searched}`);
  $('lines').textContent = stepped[1].out;
  showFigures(plan);
  showMemory(plan, shown.step);
  timeline.show(shown.step, shown.ops);
  document.body.dataset.answered = String(Number(document.body.dataset.answered || 0) + 1);
}
function fail(answer) {
  $('busy').hidden = true;
  $('result').hidden = !shown;
  say(firstLines(answer.err) || 'no answer', true);
  document.body.dataset.answered = String(Number(document.body.dataset.answered || 0) + 1);
}

/* --- figures ---------------------------------------------------------------------------------- */

const formatBytes = (bytes) => bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toPrecision(3)} GiB` : `${(bytes / 2 ** 20).toPrecision(3)} MiB`;
const thousands = (x) => Number(x.toPrecision(4)).toLocaleString('en');

function showFigures(plan) {
  const rows = [
    ['Step', formatNs(plan.step_ns)],
    ['Samples a second', thousands(plan.samples_per_s)],
    plan.tokens_per_s > 0 && ['Tokens a second', thousands(plan.tokens_per_s)],
    plan.mfu > 0 && ['MFU', `${(100 * plan.mfu).toFixed(1)} %`],
    ['Bubble', `${(100 * shown.step.bubble_fraction).toFixed(2)} %`],
    ['Layout', `PP ${plan.pipeline_length} × DP ${plan.replicas} × TP ${plan.tensor ?? 1}` + (plan.expert > 1 ? ` × EP ${plan.expert}` : '')],
    ['Micro-batches', `${plan.microbatches} of ${plan.microbatch_size}`],
    ['Schedule', plan.schedule + (plan.chunks > 1 ? `, ${plan.chunks} chunks` : '')],
    ['Recompute', plan.recompute],
    ['Shard', plan.shard ?? 'none'],
    plan.shares && ['Left out, mean share of a rank', plan.shares.map((row) => `${(100 * row.reduce((sum, share) => sum + share, 0) / row.length).toFixed(1)} %`).join(', '), true],
    plan.frozen_layers > 0 && ['Frozen layers', `${plan.frozen_layers} (${plan.frozen})`],
    ['Memory, tightest rank', formatBytes(Math.max(...shown.step.devices.map((d) => d.peak_bytes))) + (plan.memory_limit_bytes ? ` of ${formatBytes(plan.memory_limit_bytes)}` : '')],
    plan.lower_bound_ns > 0 && ['Proven lower bound', formatNs(plan.lower_bound_ns)],
    ['Data type, optimizer', `${plan.dtype}, ${plan.optimizer}` + (plan.assumed.length > 0 ? ' (assumed)' : '')],
    plan.cost > 0 && ['Cost of the run', thousands(plan.cost)],
    ['Costs', plan.cost_label, true],
    ['Cut, items a stage', plan.cut.join(', '), true],
    plan.cost_note && ['Note', plan.cost_note, true],
  ].filter(Boolean);
  $('figures').replaceChildren(...rows.map(([name, value, long]) => {
    const row = document.createElement('div');
    row.className = long ? 'long' : '';
    row.append(Object.assign(document.createElement('dt'), {textContent: name}), Object.assign(document.createElement('dd'), {textContent: value}));
    return row;
  }));
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes))
    node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const chartWidth = (id) => Math.min(Math.max($(id).clientWidth, 300), 900);

const PART_COLOURS = {weights: '#3b82c4', gradients: '#d98c2b', optimizer: '#4fa36c', stash: '#8b6fb8', work: '#c7586c', buffers: '#5fb3b3', context: '#8a94a3', allocator: '#b39b5f'};

/* A bar a rank, with its parts. */
function showMemory(plan, step) {
  const ranks = plan.memory_ranks, limit = plan.memory_limit_bytes || 0;
  const total = (parts) => Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
  const width = chartWidth('memory'), left = 60, right = 84, row = 22, most = Math.max(limit, ...ranks.map(total));
  const scale = (bytes) => bytes / most * (width - left - right);
  const chart = svg('svg', {viewBox: `0 0 ${width} ${ranks.length * row + 22}`, width, role: 'img', 'aria-label': `Memory of ${ranks.length} ranks by part; the table below has the numbers`});
  ranks.forEach((parts, k) => {
    let x = left;
    chart.append(svg('text', {x: 0, y: k * row + 15}, `rank ${k}`));
    for (const [name, bytes] of Object.entries(parts)) {
      if (bytes <= 0)
        continue;
      chart.append(svg('rect', {x, y: k * row + 3, width: Math.max(scale(bytes), .5), height: row - 6, fill: PART_COLOURS[name]}, svg('title', {}, `rank ${k}: ${name} ${formatBytes(bytes)}`)));
      x += scale(bytes);
    }
    chart.append(svg('text', {x: x + 5, y: k * row + 15, class: 'soft'}, formatBytes(total(parts))));
  });
  if (limit) {
    const x = left + scale(limit);
    chart.append(svg('line', {x1: x, x2: x, y1: 0, y2: ranks.length * row + 4, stroke: 'var(--bad)', 'stroke-dasharray': '4 3'}),
                 svg('text', {x, y: ranks.length * row + 18, 'text-anchor': 'end', class: 'soft'}, `a device has ${formatBytes(limit)}`));
  }
  const names = Object.keys(ranks[0]).filter((name) => ranks.some((parts) => parts[name] !== 0));
  const table = document.createElement('table');
  const head = table.createTHead().insertRow();
  for (const name of ['rank', ...names]) {
    const cell = document.createElement('th');
    if (PART_COLOURS[name])
      cell.innerHTML = `<i style="display:inline-block;width:.7em;height:.7em;border-radius:2px;background:${PART_COLOURS[name]}"></i> `;
    cell.append(name);
    head.append(cell);
  }
  const body = table.createTBody();
  ranks.forEach((parts, k) => {
    const cells = body.insertRow();
    for (const value of [k, ...names.map((name) => formatBytes(parts[name]))])
      cells.insertCell().textContent = value;
  });
  $('memory').replaceChildren(chart, table);
}

function parseOps(csv) {
  const lines = csv.split('\n'), names = lines[0].split(',');
  const at = Object.fromEntries(names.map((name, i) => [name, i]));
  return lines.slice(1).filter((line) => line).map((line) => {
    const cell = line.split(',');
    return {replica: +cell[at.replica], rank: +cell[at.rank], op: cell[at.op], stage: +cell[at.stage],
            microbatch: cell[at.microbatch] === '' ? -1 : +cell[at.microbatch], start: +cell[at.start_ns], end: +cell[at.end_ns]};
  });
}
/* --- sweeps ------------------------------------------------------------------------------------ */

const SWEEPS = {'train.batch.global': '16,32,64,128', 'model.seq': '1024,2048,4096,8192', 'cluster.nodes': '1,2,4', 'pipeline.num_stages': '1,2,4,8',
                'pipeline.num_replicas': '1,2,4,8', 'pipeline.tensor': '1,2,4,8', 'pipeline.num_microbatches': '4,8,16,32',
                'pipeline.schedule': 'gpipe,1f1b,zb-h1', 'cluster.uplink': '25GBps,50GBps,100GBps', 'train.dtype': 'fp32,bf16'};

function wireSweep() {
  for (const key of Object.keys(SWEEPS))
    $('sweep-key').append(new Option(key, key));
  $('sweep-key').addEventListener('change', () => $('sweep-values').value = SWEEPS[$('sweep-key').value]);
  $('sweep-values').value = SWEEPS['train.batch.global'];
  $('sweep-go').addEventListener('click', sweep);
}
async function sweep() {
  const key = $('sweep-key').value, values = $('sweep-values').value.replace(/\s/g, '');
  $('sweep-status').textContent = 'Sweeping';
  sweeper = sweeper || new Asker((line) => $('sweep-status').textContent = line);
  const [answer] = await sweeper.ask([{args: [...commandArgs(), '--sweep', `${key}=${values}`, '--json'], files: files()}]);
  const points = answer.out.split('\n').filter((line) => line).map((line) => JSON.parse(line));
  $('sweep-status').textContent = points.length === 0 ? firstLines(answer.err) || 'no answer' : '';
  showSweep(key, points);
}
function showSweep(key, points) {
  const good = points.filter((point) => point.step_ns > 0);
  const width = chartWidth('sweep'), height = 240, left = 70, bottom = 34, top = 14, most = Math.max(1, ...good.map((point) => point.step_ns));
  const chart = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, role: 'img', 'aria-label': `Step time against ${key}; the table below has the numbers`});
  const x = (i) => left + (width - left - 30) * (points.length > 1 ? i / (points.length - 1) : .5), y = (ns) => height - bottom - ns / most * (height - bottom - top);
  for (const share of [0, .5, 1])
    chart.append(svg('line', {x1: left, x2: width - 10, y1: y(share * most), y2: y(share * most), class: 'axis'}),
                 svg('text', {x: left - 6, y: y(share * most) + 4, 'text-anchor': 'end', class: 'soft'}, share ? formatNs(share * most) : '0'));
  chart.append(svg('polyline', {fill: 'none', stroke: 'var(--accent)', 'stroke-width': 2, points: points.map((point, i) => point.step_ns > 0 ? `${x(i)},${y(point.step_ns)}` : '').join(' ')}));
  points.forEach((point, i) => {
    chart.append(svg('text', {x: x(i), y: height - 14, 'text-anchor': 'middle'}, String(point[key])));
    if (point.step_ns > 0)
      chart.append(svg('circle', {cx: x(i), cy: y(point.step_ns), r: 4, fill: 'var(--accent)'}, svg('title', {}, `${point[key]}: ${formatNs(point.step_ns)}`)));
  });
  const table = document.createElement('table');
  const columns = [key, 'step', 'samples/s', 'layout', 'schedule', 'peak'];
  const head = table.createTHead().insertRow();
  for (const name of columns)
    head.append(Object.assign(document.createElement('th'), {textContent: name}));
  const body = table.createTBody();
  for (const point of points) {
    const cells = body.insertRow();
    const values = point.step_ns > 0 ? [point[key], formatNs(point.step_ns), thousands(point.samples_per_s), `${point.pipeline_length} × ${point.replicas} × ${point.tensor ?? 1}`, point.schedule, formatBytes(point.peak_bytes)] : [point[key], point.error || 'no plan'];
    for (const value of values)
      cells.insertCell().textContent = value;
  }
  $('sweep').replaceChildren(...(points.length ? [chart, table] : []));
}

/* --- a run whose layers freeze ------------------------------------------------------------------ */

const RUN_KEYS = {'run-policy': 'freeze.policy', 'run-alpha': 'freeze.alpha', 'run-epochs': 'train.epochs', 'run-samples': 'data.train_samples'};

function wireRun() {
  for (const word of keyWords['freeze.policy'].filter((word) => ['none', 'closed-form', 'timed'].includes(word)))
    $('run-policy').append(new Option(word, word));
  $('run-policy').value = 'closed-form';
  $('run-go').addEventListener('click', simulateRun);
}
async function simulateRun() {
  const sets = Object.entries(RUN_KEYS).flatMap(([id, key]) => $(id).value ? ['--set', `${key}=${$(id).value}`] : []);
  $('run-status').textContent = 'Simulating';
  runner = runner || new Asker((line) => $('run-status').textContent = line);
  const [answer] = await runner.ask([{args: ['sim', '/job.json', '--no-wall', '--json', ...sets], files: {...files(), '/job.json': JSON.stringify(shown.plan.job)}}]);
  $('run-status').textContent = answer.code === 0 ? '' : firstLines(answer.err) || 'no answer';
  $('run').replaceChildren();
  if (answer.code === 0)
    showRun(JSON.parse(answer.out));
}
/* A bar an epoch: its step, and the frozen layers above it. */
function showRun(run) {
  const epochs = run.epochs, width = chartWidth('run'), height = 240, left = 70, bottom = 34, top = 26;
  const most = Math.max(1, ...epochs.map((epoch) => epoch.step_ns)), slot = (width - left - 10) / epochs.length;
  const chart = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, role: 'img', 'aria-label': 'Step time and frozen layers of each epoch; the table below has the numbers'});
  for (const share of [0, .5, 1])
    chart.append(svg('text', {x: left - 6, y: height - bottom - share * (height - bottom - top) + 4, 'text-anchor': 'end', class: 'soft'}, share ? formatNs(share * most) : '0'));
  epochs.forEach((epoch, i) => {
    const tall = epoch.step_ns / most * (height - bottom - top), x = left + i * slot;
    chart.append(svg('rect', {x, y: height - bottom - tall, width: Math.max(slot - 3, 1), height: tall, fill: 'var(--accent)'}, svg('title', {}, `epoch ${epoch.epoch}: ${formatNs(epoch.step_ns)}, ${epoch.frozen_layers} layers frozen`)));
    if (slot > 16)
      chart.append(svg('text', {x: x + slot / 2, y: height - bottom - tall - 5, 'text-anchor': 'middle'}, `F ${epoch.frozen_layers}`), svg('text', {x: x + slot / 2, y: height - 14, 'text-anchor': 'middle', class: 'soft'}, String(epoch.epoch)));
  });
  const table = document.createElement('table'), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of ['epoch', 'frozen layers', 'step', 'samples/s', 'K × R', 'micro-batches'])
    head.append(Object.assign(document.createElement('th'), {textContent: name}));
  for (const epoch of epochs) {
    const cells = body.insertRow();
    for (const value of [epoch.epoch, epoch.frozen_layers, formatNs(epoch.step_ns), thousands(epoch.samples_per_s), `${epoch.pipeline_length} × ${epoch.replicas}`, epoch.microbatches])
      cells.insertCell().textContent = value;
  }
  const total = Object.assign(document.createElement('p'), {textContent: `Whole run: ${formatNs(run.total_ns)}`});
  $('run').replaceChildren(total, chart, table);
}

/* --- start ------------------------------------------------------------------------------------- */

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Select the line above, and copy it';
  }
  setTimeout(() => button.textContent = before, 1500);
}
async function begin() {
  readHash();
  makeControls();
  if (typeof WebAssembly !== 'object' || typeof DecompressionStream !== 'function')
    return say('This browser has no WebAssembly or no DecompressionStream, which the page needs. A browser of 2023 or later has both.', true);
  compiled = await WebAssembly.compile(await unpack());
  main = new Asker((line) => say(line.replace(/^plan: /, '')));
  const [rows] = await main.ask([{args: ['--help=rows']}]);
  takeRows(rows.out);
  showState();
  timeline = new Timeline($('timeline'));
  wireSweep();
  wireRun();
  $('controls').addEventListener('submit', (event) => event.preventDefault());
  $('copy').addEventListener('click', () => copy(commandLine(), $('copy')));
  $('link').addEventListener('click', () => copy(location.href, $('link')));
  addEventListener('hashchange', () => {
    readHash();
    showState();
    ask();
  });
  ask();
}
begin();
