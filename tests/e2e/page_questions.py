"""The page in a headless Chromium beside the program: python3 page_questions.py ELAPSE PAGE NUMBER FOLDER.

Each question is written into the page's address as a person's link would hold it. The page's command, run by
the program, must give the same plan and the same step, number for number. Prints TAP."""
import json
import random
import re
import shlex
import subprocess
import sys
from urllib.parse import urlencode

from chromium import Chromium

elapse, page, number, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
failed = False


def report(good, name, why=""):
    global failed
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} - page: {name}", flush=True)
    if not good:
        print(f"# {why}"[:2000], flush=True)


def questions(random):
    """Searches with a budget of work, which ends them at one plan in the page and in the program."""
    while True:
        kind = random.choice(["a100", "h100", "v100", "rtx5000", "l4", "b200"])
        asked = {"model": random.choice(["gpt2", "gpt2-medium", "bert-base", "bert-large", "vit-b16", "vit-tiny", "qwen2.5-0.5b",
                                         "llama3.2-1b", "t5-small", "uniform:layers=8,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,act=1MiB,params=1000000"]),
                 "cluster": kind, "nodes": random.choice("12"), "gpus": random.choice("248"),
                 "batch": random.choice("8 16 24 32 64".split()), "dtype": random.choice(["fp32", "bf16", "fp16"]),
                 "K": random.choice(["", "1", "2", "4"]), "T": random.choice(["", "1", "2"]), "R": random.choice(["", "", "2"]),
                 "M": random.choice(["", "4", "8"]), "work": random.choice(["300", "3000", "10000"]), "schedule": random.choice(["", "", "1f1b", "gpipe", "zb-h1", "interleaved"])}
        extra = {"optimizer": "adamw", "share": "0.5", "frozen": "3", "price": "2.5", "uplink": "25GBps", "link": "100GBps", "recompute": "stage",
                 "shard": "weights", "framework": "fsdp"}
        for key in random.sample(sorted(extra), 2):
            asked[key] = extra[key]
        yield asked


def ask(browser, asked):
    before = browser.js("Number(document.body.dataset.answered || 0)")
    browser.js(f"location.hash = {json.dumps('#' + urlencode(asked))}; null")
    browser.wait(f"Number(document.body.dataset.answered || 0) > {before} && $('busy').hidden", 120)


def program(words):
    return subprocess.run(words, capture_output=True, text=True, cwd=folder)


def timeless(answer):
    """Without the times that the search itself took."""
    if isinstance(answer, dict):
        return {key: timeless(value) for key, value in answer.items() if key not in ("solve_ns", "processor_ns")}
    return list(map(timeless, answer)) if isinstance(answer, list) else answer


def same(browser, asked):
    """"" where page and program agree, else how they differ; whether there was a plan; and whether its search ended by itself."""
    ask(browser, asked)
    line = shlex.split(browser.js("$('line').textContent"))
    told = program([elapse, *line[1:], "--json", "-o", "plan.json"])
    if told.returncode != 0:
        shown = browser.js("$('status').textContent")
        expected = "\n".join(re.sub("^elapse: ", "", row) for row in told.stderr.strip().split("\n"))
        return ("" if shown == expected else f"{line}: page {shown!r}, program {expected!r}"), False, True
    plan, theirs = json.loads(told.stdout), browser.js("shown.plan")
    complete = plan["searched"]["complete"]
    with open(f"{folder}/job.json", "w") as file:
        json.dump(plan["job"], file)
    step = json.loads(program([elapse, "sim", "job.json", "--step", "--plan", "plan.json", "--no-wall", "--json"]).stdout)
    for name, ours, page_has in (("plan", plan, theirs), ("step", step, browser.js("shown.step"))):
        ours, page_has = timeless(ours), timeless(page_has)
        differ = [key for key in {**ours, **page_has} if ours.get(key) != page_has.get(key)]
        if differ:
            return f"{line}: {name} differs in " + ", ".join(f"{key} {page_has.get(key)} {ours.get(key)}" for key in differ), True, complete
    if step["step_ns"] != plan["step_ns"]:
        return f"{line}: the step of the timeline is not that of the plan", True, complete
    return "", True, complete


def many(browser):
    found, unfinished, wrong = 0, 0, []
    chooser = questions(random.Random(67))
    for _ in range(number):
        why, answered, complete = same(browser, next(chooser))
        found += answered
        unfinished += not complete
        if why:
            wrong.append(why)
    report(not wrong, f"{number} questions have the program's numbers", "\n# ".join(wrong[:5]))
    report(0 < unfinished < number, "some searches reach their budget, others end", f"{unfinished} of {number} reached it")
    report(found > number / 2, "most questions have a plan", f"{found} of {number}")
    print(f"# {found} of {number} questions have a plan, {unfinished} searches reached their budget", flush=True)


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 256}


def drop(browser, name, text):
    """As a person drops a file on the page."""
    before = browser.js("Number(document.body.dataset.answered || 0)")
    with open(f"{folder}/{name}", "w") as file:
        file.write(text)
    browser.js("{const d = new DataTransfer(); d.items.add(new File([%s], %s)); "
               "document.dispatchEvent(new DragEvent('drop', {dataTransfer: d, bubbles: true, cancelable: true})); null}"
               % (json.dumps(text), json.dumps(name)))
    browser.wait(f"Number(document.body.dataset.answered || 0) > {before} && $('busy').hidden", 120)


def one_line(browser, name, like):
    text = browser.js("$('status').textContent")
    report(browser.js("$('status').className") == "bad" and re.search(like, text) is not None and len(text.split("\n")) <= 2, name, text)


def files_and_errors(browser):
    asked = {"model": "gpt2", "cluster": "a100", "nodes": "1", "gpus": "4", "batch": "8"}
    ask(browser, asked)
    drop(browser, "config.json", json.dumps(CONFIG))
    why, answered, _ = same(browser, {**asked, "model": "config.json", "seq": "128", "file": json.dumps({"name": "config.json", "text": json.dumps(CONFIG)})})
    report(answered and not why, "a dropped config.json is planned as the program plans it", why)
    drop(browser, "notes.json", "this is no configuration")
    one_line(browser, "a file that is no configuration is one clear line", "notes.json")
    ask(browser, {**asked, "model": "llama3-405b"})
    one_line(browser, "a plan that does not fit is one clear line", "(?i)memory|GiB")
    ask(browser, {**asked, "model": "gpt9"})
    one_line(browser, "an unknown model is one clear line", "gpt9")


def controls(browser):
    ask(browser, {"model": "gpt2", "cluster": "a100", "nodes": "1", "gpus": "4", "batch": "16", "K": "4"})
    whole = browser.js("JSON.stringify(timeline.view)")
    browser.js("document.querySelector('canvas').focus(); document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '+'})); null")
    zoomed = browser.js("JSON.stringify(timeline.view)")
    browser.js("document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '0'})); null")
    report(zoomed != whole and browser.js("JSON.stringify(timeline.view)") == whole, "keys zoom the timeline and show the whole step again", f"{whole} {zoomed}")
    browser.js("timeline.hover(Timeline.LEFT + 3, 8); null")
    report("micro-batch 0" in browser.js("timeline.text.textContent"), "an op names its micro-batch", browser.js("timeline.text.textContent"))
    browser.js("$('sweep-key').value = 'pipeline.num_microbatches'; $('sweep-values').value = '4,8'; $('sweep-go').click(); null")
    browser.wait("document.querySelectorAll('#sweep tbody tr').length == 2")
    line = shlex.split(browser.js("$('line').textContent"))
    rows = program([elapse, *line[1:], "--sweep", "pipeline.num_microbatches=4,8", "--json"]).stdout.split("\n")
    steps = [json.loads(row)["step_ns"] for row in rows if row]
    titles = browser.js("[...document.querySelectorAll('#sweep circle title')].map((t) => t.textContent)")
    report(titles == [browser.js(f"'{m}: ' + formatNs({ns})") for m, ns in zip((4, 8), steps)], "a sweep has the program's steps", f"{titles} {steps}")
    browser.js("$('run-epochs').value = 4; $('run-go').click(); $('sweep-go').click(); null")  # neither ends the other
    browser.wait("document.querySelectorAll('#run tbody tr').length == 4")
    with open(f"{folder}/job.json", "w") as file:
        json.dump(browser.js("shown.plan.job"), file)
    run = json.loads(program([elapse, "sim", "job.json", "--no-wall", "--json", "--set", "freeze.policy=closed-form", "--set", "train.epochs=4", "--set", "data.train_samples=10000"]).stdout)
    bars = browser.js("[...document.querySelectorAll('#run rect title')].map((t) => t.textContent)")
    expected = [f"epoch {epoch['epoch']}: " + browser.js(f"formatNs({epoch['step_ns']})") + f", {epoch['frozen_layers']} layers frozen" for epoch in run["epochs"]]
    report(bars == expected and len({epoch["frozen_layers"] for epoch in run["epochs"]}) > 1, "a run's epochs are the program's", f"{bars} {expected}")
    unlabelled = browser.js("[...document.querySelectorAll('input,select,button,canvas')].filter((e) => !e.labels?.length && !e.textContent.trim() && "
                            "!e.getAttribute('aria-label')).map((e) => e.id)")
    report(unlabelled == [], "every control has a label", unlabelled)
    for width in (360, 1200):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=True)
        wide = browser.js("document.documentElement.scrollWidth")
        report(wide <= width, f"nothing is wider than {width} pixels", wide)


def report_timelines(browser):
    """`elapse report --interactive` has the page's timeline."""
    with open(f"{folder}/small.json", "w") as file:
        json.dump({"model": "vit-tiny", "cluster": "a100-1x4", "data": {"train_samples": 64}, "train": {"batch": {"global": 8}},
                   "pipeline": {"num_stages": 2, "num_replicas": 2}}, file)
    made = program([elapse, "report", "small.json", "--interactive", "-o", "report.html"])
    step = json.loads(program([elapse, "sim", "small.json", "--step", "--no-wall", "--json"]).stdout)["step_ns"]
    browser.load("Page.navigate", url=f"file://{folder}/report.html")
    label = browser.js("document.querySelector('canvas')?.getAttribute('aria-label')") or made.stderr
    report(label.startswith("Timeline of pipeline 0: 2 ranks, step " + browser.js(f"formatNs({step})")), "a report has the timeline of the step", label)
    browser.js("document.querySelector('canvas').dispatchEvent(new PointerEvent('pointermove', {clientX: document.querySelector('canvas').getBoundingClientRect().x + 60, "
               "clientY: document.querySelector('canvas').getBoundingClientRect().y + 8})); null")
    text = browser.js("document.querySelector('.hover').textContent")
    report("micro-batch 0" in text, "where an op names its micro-batch", text)


with Chromium() as browser:
    browser.load("Page.navigate", url=f"file://{page}#" + urlencode({"model": "gpt2", "cluster": "a100", "nodes": "1", "gpus": "2", "batch": "8"}))
    browser.wait("document.body.dataset.answered")
    many(browser)
    files_and_errors(browser)
    controls(browser)
    report_timelines(browser)
    report(browser.errors == [], "no exception", browser.errors)
    browser.load("Page.navigate", url=f"file://{page}")
    browser.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.WebAssembly")
    browser.load("Page.reload")
    browser.wait("$('status').className == 'bad'")
    one_line(browser, "a browser without WebAssembly is told so", "WebAssembly")
sys.exit(failed)
