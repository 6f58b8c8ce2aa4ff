/* The module in a worker. A request is a list of runs of the program: its arguments, files to write before
 * and to read after. Each run is a new instance, as each command is a new process; files that were read are
 * there for the runs after it. Runs end at the first that fails. */
'use strict';
const decoder = new TextDecoder();
const text = (bytes) => decoder.decode(new Uint8Array(bytes));
let compiled;

async function run(step, files) {
  const out = [], err = [], read = {};
  const program = await ElapseModule({
    instantiateWasm(imports, done) {
      WebAssembly.instantiate(compiled, imports).then((instance) => done(instance));
      return {};
    },
    preRun: [(m) => m.FS.init(() => null, (byte) => byte !== null && out.push(byte), (byte) => {
      if (byte === null)
        return;
      err.push(byte);
      if (byte === 75 /* of ESC [ K, which ends a line of progress */)
        postMessage({progress: text(err).split(/[\r\n]|\x1b\[K/).filter((line) => line).pop() || ''});
    })],
  });
  program.FS.streams[2].tty = {}; /* so that the program reports its progress */
  program.FS.ignorePermissions = true; /* emscripten's umask() denies everything */
  for (const [path, content] of Object.entries(files))
    program.FS.writeFile(path, content);
  const code = program.callMain(step.args);
  program._fflush(0);
  for (const path of code === 0 ? step.read || [] : [])
    read[path] = files[path] = program.FS.readFile(path, {encoding: 'utf8'});
  return {code, out: text(out), err: text(err).replace(/[^\n]*(\x1b\[K|\r)/g, '').trim(), read};
}

onmessage = async ({data}) => {
  const {module, runs} = data, answers = [];
  try {
    compiled = module || compiled;
    const files = {};
    for (const step of runs) {
      answers.push(await run(step, Object.assign(files, step.files)));
      if (answers[answers.length - 1].code !== 0)
        break;
    }
    postMessage({answers});
  } catch (error) {
    postMessage({failed: String(error && error.message || error)});
  }
};
