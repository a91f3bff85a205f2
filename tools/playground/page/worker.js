// rlc in Pyodide, away from the page, which stays responsive. It is asked one thing at a time.

const python = start();

async function start() {
  const home = new URL(new URL(self.location).searchParams.get("pyodide"), self.location);
  const packages = fetch("packages.zip").then((response) => {
    if (!response.ok) throw new Error(`packages.zip: ${response.status}`);
    return response.arrayBuffer();
  });
  const { loadPyodide } = await import(new URL("pyodide.mjs", home));
  const pyodide = await loadPyodide({ indexURL: home.href });
  pyodide.unpackArchive(await packages, "zip", { extractDir: "/rlc" });
  pyodide.runPython(`
    import os, sys
    sys.path.insert(0, "/rlc")
    os.chdir("/rlc/recipes")
  `);
  return pyodide.pyimport("bridge").answer;
}

self.onmessage = async ({ data }) => {
  try {
    self.postMessage({ answer: JSON.parse((await python)(JSON.stringify(data))) });
  } catch (error) {
    self.postMessage({ failed: String(error.message ?? error).trim() });
  }
};
