// A run while it runs: numbers at once, charts and answers as often as they can be looked at.
import { $, ask, fill, listen, problem } from "./common.js";

const live = $("#live"), answers = $("#answers"), said = $("#said");
const name = live.dataset.name;
const busy = (state) => ["waiting", "starting", "running", "stopping"].includes(state);
let state = live.dataset.state, drawn = 0, asked = 0, drawing = false, asking = false;

async function redraw(whole) {
  if (drawing || (!whole && Date.now() - drawn < 1000)) return;
  drawing = true;
  try {
    const found = document.createElement("template");
    found.innerHTML = await ask(`/run/${name}?part=live`);
    const [old, now] = [$(".charts", live), $(".charts", found.content)];
    if (!whole && old && now) old.replaceWith(now);  // the buttons stay, and the focus with them
    else live.replaceChildren(found.content);
    drawn = Date.now();
  } catch (error) {
    said.textContent = error.message;
  } finally {
    drawing = false;
  }
}

async function look(now = false) {
  if (!answers || asking || (!now && Date.now() - asked < 2500)) return;
  asking = true;
  try {
    const text = await ask(`/answers/${name}`);
    const place = document.createElement("template");
    place.innerHTML = text;
    const old = [...answers.querySelectorAll("li")], fresh = [...place.content.querySelectorAll("li")];
    if (old.length !== fresh.length) answers.replaceChildren(place.content);
    else {
      old.forEach((li, i) => {  // images stay, so that nothing flickers; only answers change
        const [a, b] = [$(".is", li), $(".is", fresh[i])];
        const changed = a.textContent !== b.textContent;
        a.replaceWith(b);
        li.className = fresh[i].className + (changed ? " changed" : "");
      });
      $("p", answers).textContent = $("p", place.content).textContent;
    }
  } catch (error) {
    if (!answers.querySelector("li")) answers.replaceChildren(problem(error));
  } finally {
    asked = Date.now();
    asking = false;
  }
}

const events = {
  generation(values) {
    said.textContent = "";
    fill(values, live);
    const bar = $("progress", live);
    if (bar) bar.value = values.percent;
    redraw(!bar);
    look();
  },
  async state(found, stop) {
    if (found.state === state) return;
    state = found.state;
    if (state === "finished") return location.reload();
    await redraw(true);
    said.textContent = state === "failed" ? "The run has failed." : `The run is ${state}.`;
    if (!busy(state)) {
      if (answers && !$("li", answers)) answers.closest("section").remove();  // none will come
      stop();
    }
  },
  again: () => location.reload(),
};
async function poll() {
  said.textContent = "The stream was cut; taking it up again.";
  await redraw(true);
}
if (busy(state)) listen(`/events/${name}`, live.dataset.after, events, poll);
if (answers && "ready" in answers.dataset) look(true);
