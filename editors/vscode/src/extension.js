// Starts `rlc lsp` and lets VS Code talk to it: everything else is the server's.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");
const { LanguageClient, RevealOutputChannelOn } = require("vscode-languageclient/node");

const SCRIPTS = process.platform === "win32" ? ["Scripts", "rlc.exe"] : ["bin", "rlc"];
let client;

/** The command of the settings; else the `rlc` of the folder's own environment, or of the path. */
function command(folder) {
  const given = vscode.workspace.getConfiguration("rlc").get("command") || [];
  if (given.length > 0) {
    const [program, ...rest] = given;
    const isInFolder = /[\\/]/.test(program) && !path.isAbsolute(program);
    return [isInFolder && folder ? path.join(folder, program) : program, ...rest];
  }
  const own = folder && path.join(folder, ".venv", ...SCRIPTS);
  return [own && fs.existsSync(own) ? own : "rlc", "lsp"];
}

async function start() {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const [program, ...args] = command(folder);
  client = new LanguageClient(
    "rlc",
    "rlc",
    { command: program, args, options: { cwd: folder } },
    {
      documentSelector: [
        { scheme: "file", language: "rl" },
        { scheme: "untitled", language: "rl" },
      ],
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      // What recipes name beside themselves: a saved row or reward changes what is found.
      synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.{rl,py,jsonl,json,csv,parquet,md,txt}") },
    },
  );
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const shown = [program, ...args].join(" ");
    const advice = "Install it with: pip install 'rlc[lsp]', or name it in the setting rlc.command.";
    const choice = await vscode.window.showErrorMessage(
      `The language server \`${shown}\` does not start: ${error?.message ?? error}. ${advice}`,
      "Open settings",
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "rlc.command");
    }
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function activate(context) {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(
    vscode.commands.registerCommand("rlc.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("rlc.command")) {
        return restart();
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
  );
  if (vscode.workspace.isTrusted) {
    await start();
  }
}

module.exports = { activate, deactivate: stop, command };
