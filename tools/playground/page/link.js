// A recipe in the fragment of a link, which browsers do not send to anybody.

const KEY = "#code=";
const MOST = 1_000_000;  // bytes of a recipe, as rlc has it

export async function writeLink(text) {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text));
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return KEY + btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The recipe of a fragment; null if it has none, or none that can be read.
export async function readLink(fragment) {
  if (!fragment.startsWith(KEY)) return null;
  try {
    const letters = atob(fragment.slice(KEY.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    return new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), bytes));
  } catch {
    return null;
  }
}

async function through(stream, bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const parts = [];
  let length = 0;
  for (let part; !(part = await reader.read()).done; parts.push(part.value)) {
    length += part.value.length;
    if (length > MOST) throw new RangeError("this is no recipe");
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}
