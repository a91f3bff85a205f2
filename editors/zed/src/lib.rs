//! Starts `rlc lsp` for Zed: the `rlc` of a `.venv` in the folder, else the one on the path. Another
//! one is named by `lsp.rlc.binary` in Zed's settings, which Zed reads itself.

use zed_extension_api::{self as zed, Command, LanguageServerId, Result, Worktree};

struct Rlc;

impl zed::Extension for Rlc {
    fn new() -> Self {
        Rlc
    }

    fn language_server_command(
        &mut self,
        _language_server_id: &LanguageServerId,
        worktree: &Worktree,
    ) -> Result<Command> {
        // What pip installs there is a text, so that it can be looked for by reading it.
        let own = ".venv/bin/rlc";
        let command = match worktree.read_text_file(own) {
            Ok(_) => Some(format!("{}/{own}", worktree.root_path())),
            Err(_) => worktree.which("rlc"),
        };
        Ok(Command {
            command: command.ok_or("rlc is not on the path: pip install 'rlc[lsp]'")?,
            args: vec!["lsp".to_string()],
            env: worktree.shell_env(),
        })
    }
}

zed::register_extension!(Rlc);
