// A new run: images from a drop, what the model knows, what the run will cost.
import { $, all, ask, make, problem } from "./common.js";
import { droppable, walk } from "./dropping.js";

const sending = $("#sending"), form = $("#new");
const MB = 2 ** 20;
const IMAGES = /\.(png|jpe?g|jfif|bmp|gif|webp|ppm|pgm|tiff?|heic|heif|avif)$/i;

const say = (text) => (sending.textContent = text);
function go(data) {
  const query = new URLSearchParams({ data, model: $("input[name=model]").value });
  location.assign(`/new?${query}`);
}

async function sendZip(file) {
  if (file.size > 2048 * MB) throw new Error(`${file.name} has ${Math.round(file.size / MB)} MB; at most 2048 are taken. Unpack it, and name the folder above.`);
  say(`Sending ${file.name} …`);
  const found = await ask(`/upload?${new URLSearchParams({ kind: "zip", title: file.name })}`, { method: "POST", body: file });
  go(found.data);
}

async function sendFolder(files) {
  const images = files.filter((one) => IMAGES.test(one.path));
  if (!images.length) throw new Error("There are no images in it; wanted one folder per class, with images in it.");
  const large = images.find((one) => one.file.size > 64 * MB);
  if (large) throw new Error(`${large.path} has ${Math.round(large.file.size / MB)} MB; at most 64 are taken. Make it smaller, or name the folder above.`);
  const title = images[0].path.split("/")[0];
  let to = "", data = "";
  for (let i = 0; i < images.length; ) {
    const body = new FormData();
    for (let bytes = 0, n = 0; i < images.length && n < 200 && bytes < 3e7; i++, n++) {
      body.append("name", images[i].path);
      body.append("file", images[i].file, "image");
      bytes += images[i].file.size;
    }
    ({ to, data } = await ask(`/upload?${new URLSearchParams({ title, to })}`, { method: "POST", body }));
    say(`Sent ${i.toLocaleString("en")} of ${images.length.toLocaleString("en")} images …`);
  }
  go(data);
}

async function take(files) {
  try {
    if (files.length === 1 && /\.zip$/i.test(files[0].path)) await sendZip(files[0].file);
    else await sendFolder(files);
  } catch (error) {
    sending.replaceChildren(problem(error));
  }
}

droppable($("#drop"), async (transfer) => take(await walk(transfer)));
$("select[name=data]").addEventListener("change", () => ($("input[name=folder]").value = ""));  // else the folder wins
$("#zip").addEventListener("change", (event) => take([...event.target.files].map((file) => ({ file, path: file.name }))));
$("#folder").addEventListener("change", (event) =>
  take([...event.target.files].map((file) => ({ file, path: file.webkitRelativePath }))));

async function showKnown() {
  const place = $("#known");
  place.textContent = "Looking at what the model knows …";
  try {
    const { known, unreadable } = await ask(`/known?${new URLSearchParams({ data: place.dataset.data, model: place.dataset.model })}`);
    for (const [name, [right, seen]] of Object.entries(known)) {
      const spot = all("[data-known]").find((each) => each.dataset.known === name);
      if (spot) spot.textContent = `recognises ${right} of ${seen}`;
    }
    place.textContent = "What the model recognises now, of a few images of each class.";
    if (unreadable.length) place.append(problem(new Error(
      `${unreadable[0]}${unreadable.length > 1 ? ` (and ${unreadable.length - 1} more of these few)` : ""}. Mend or remove such images, or have them left out: More settings, “Images that cannot be read”.`)));
  } catch (error) {
    place.replaceChildren(problem(error));
  }
}

let waiting, turn = 0;
function foresee() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const place = $("#forecast"), mine = ++turn;
    if (!all("input[name=forget]:checked").length) return;
    place.replaceChildren(make("p", "Working out what it will cost …", "quiet"));
    try {
      const found = await ask("/forecast", { method: "POST", body: new URLSearchParams(new FormData(form)) });
      if (mine !== turn) return;
      const list = make("dl", "", "numbers");
      for (const [key, words] of Object.entries({ method: "Method", queries: "Image queries", candidates: "Candidates", time: "Time", price: "Price" })) {
        if (found[key] === "–") continue;
        const pair = make("div");
        pair.append(make("dt", words), make("dd", found[key]));
        list.append(pair);
      }
      place.replaceChildren(list, make("p", found.sizes, "quiet"));
    } catch (error) {
      if (mine === turn) place.replaceChildren(problem(error));
    }
  }, 300);
}

if (form) {
  const choice = $("form.filters"), chosen = () => new URLSearchParams(new FormData(choice)).toString();
  choice.reset();  // what a browser has kept of an earlier visit is not what is shown
  const shown = chosen();
  for (const kind of ["input", "change"])
    choice.addEventListener(kind, () => {
      $("#other").hidden = chosen() === shown;
      $("button.main", form).disabled = chosen() !== shown;
    });
  showKnown();
  form.addEventListener("change", foresee);
  foresee();
  $("#find")?.addEventListener("input", (event) => {
    const text = event.target.value.toLowerCase();
    for (const card of all(".cards li")) card.hidden = !$("input", card).value.toLowerCase().includes(text);
  });
}
