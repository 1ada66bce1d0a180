// The trade-off front: a handle that can be dragged on the chart or moved by keys; scores and answers follow.
import { $, all, ask, fill, problem } from "./common.js";

if ($("#auditing")) setTimeout(() => location.reload(), 4000);
const trade = $("#trade");
if (trade) {
  const handle = $("#handle"), chart = $("svg", trade), points = all("circle", chart), shots = $("#trade-shots");
  const name = trade.dataset.name;
  let facts = [], waiting;

  const show = () => {
    const i = Number(handle.value), now = facts[i];
    points.forEach((point, at) => point.classList.toggle("chosen", at === i));
    if (!now) return;
    fill(now, trade);
    handle.setAttribute("aria-valuetext", `keeps ${now.acc_mem}, errs on ${now.err_for} of the forgotten`);
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      try {
        const text = await ask(`/front/${name}?i=${i}`);
        if (i === Number(handle.value)) shots.innerHTML = text;
      } catch (error) {
        shots.replaceChildren(problem(error));
      }
    }, 150);
  };
  const nearest = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    const far = points.map((p) => Math.hypot(p.cx.baseVal.value - at.x, p.cy.baseVal.value - at.y));
    handle.value = far.indexOf(Math.min(...far));
    show();
  };
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    nearest(event);
  });
  chart.addEventListener("pointermove", (event) => chart.hasPointerCapture(event.pointerId) && nearest(event));
  handle.addEventListener("input", show);
  show();
  ask(`/front/${name}`).then((found) => { facts = found; show(); }).catch((error) => shots.replaceChildren(problem(error)));
}
