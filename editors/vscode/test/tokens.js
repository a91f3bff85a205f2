// Prints what the grammar makes of recipes: for each file a list of [offset, end, scope].
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { Registry, parseRawGrammar } = require("vscode-textmate");
const oniguruma = require("vscode-oniguruma");

const GRAMMAR = path.join(__dirname, "..", "syntaxes", "rl.tmLanguage.json");
const WASM = require.resolve("vscode-oniguruma/release/onig.wasm");

async function main(files) {
  await oniguruma.loadWASM(fs.readFileSync(WASM).buffer);
  const onigLib = Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  });
  const loadGrammar = async () => parseRawGrammar(fs.readFileSync(GRAMMAR, "utf8"), GRAMMAR);
  const grammar = await new Registry({ onigLib, loadGrammar }).loadGrammar("source.rl");
  const found = {};
  for (const file of files) {
    const tokens = (found[file] = []);
    let state = null;
    let offset = 0;
    for (const line of fs.readFileSync(file, "utf8").split("\n")) {
      const result = grammar.tokenizeLine(line, state);
      state = result.ruleStack;
      for (const token of result.tokens) {
        const scope = token.scopes[Math.min(1, token.scopes.length - 1)];
        tokens.push([offset + token.startIndex, offset + Math.min(token.endIndex, line.length), scope]);
      }
      offset += line.length + 1;
    }
  }
  process.stdout.write(JSON.stringify(found));
}

main(process.argv.slice(2));
