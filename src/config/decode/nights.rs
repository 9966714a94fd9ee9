//! Decoding `[nightly]` and `[mail]`: which commits a night measures, and who is mailed.

use super::Decoder;
use crate::base::diag::{At, Diagnostic};
use crate::config::night::{CommitRole, MailDecl, MailTransport, NightlyDecl, Pick};
use crate::config::read::{Table, TomlNode};

const SENDMAIL: &str = "/usr/sbin/sendmail";
/// Commits of a night of which one is picked.
const EVERY_MAX: u64 = 10_000;
/// Bytes of an address: RFC 5321, 4.5.3.1.
const ADDRESS_BYTES_MAX: usize = 254;

impl Decoder<'_> {
    pub(super) fn nightly(&mut self, top: &mut Table) -> NightlyDecl {
        let mut nightly = NightlyDecl::default();
        let Some(mut table) = self.table(top, "nightly", "[nightly]") else {
            return nightly;
        };
        if let Some(branch) = self.optional(&mut table, "branch") {
            nightly.branch = branch;
        }
        nightly.preset = self.optional(&mut table, "preset");
        if let Some(node) = table.get("budget") {
            nightly.budget = node.duration(self.problems);
        }
        if let Some(node) = table.get("pick") {
            nightly.pick = self.pick(&node).unwrap_or(nightly.pick);
        }
        table.finish(self.problems);
        nightly
    }

    fn pick(&mut self, node: &TomlNode) -> Option<Pick> {
        if node.value.is_integer() {
            let every = node.integer(1, EVERY_MAX, self.problems)?;
            return Some(Pick::Every(every as usize));
        }
        self.one_of(node, &[("all", Pick::All), ("tip", Pick::Tip)])
    }

    pub(super) fn mail(&mut self, top: &mut Table) -> Option<MailDecl> {
        let mut table = self.table(top, "mail", "[mail]")?;
        let from = table.require("from", self.problems);
        let from = from.and_then(|node| node.string(self.problems));
        let from = from.and_then(|from| self.address(from));
        let to = self.strings(&mut table, "to");
        let to = to.into_iter().filter_map(|to| self.address(to)).collect();
        let allow = self.strings(&mut table, "allow");
        let allow = allow.into_iter().map(|it| it.value).collect();
        let names = [
            ("author", CommitRole::Author),
            ("committer", CommitRole::Committer),
            ("trailers", CommitRole::Trailers),
        ];
        let cc = table.get("cc");
        let cc = cc.and_then(|node| node.array("roles", self.problems));
        let cc = cc.unwrap_or_default();
        let cc = cc.iter().filter_map(|node| self.one_of(node, &names));
        let cc = cc.collect();
        let sendmail = self.optional(&mut table, "sendmail");
        let folder = self.optional(&mut table, "folder");
        let transport = match (sendmail, folder) {
            (Some(_), Some(_)) => {
                self.problems.push(
                    Diagnostic::error("`[mail]` has `sendmail` or `folder`, not both")
                        .at(table.span, "this one")
                        .help(
                            "`folder` is for trying: mails are written there, and nobody gets them",
                        ),
                );
                return None;
            }
            (None, Some(folder)) => MailTransport::Folder(folder),
            (sendmail, None) => {
                MailTransport::Sendmail(sendmail.unwrap_or_else(|| SENDMAIL.to_owned()))
            }
        };
        table.finish(self.problems);
        Some(MailDecl {
            from: from?,
            to,
            cc,
            allow,
            transport,
        })
    }

    /// An address without a name: `perf@example.org`.
    fn address(&mut self, text: At<String>) -> Option<String> {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"<>,;\"()\\".contains(c);
        let parts = text.value.split_once('@');
        let is_whole = parts.is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains('@') && !user.starts_with('-')
        });
        if is_whole && text.value.len() <= ADDRESS_BYTES_MAX && text.value.chars().all(is_plain) {
            return Some(text.value);
        }
        self.problems.push(
            Diagnostic::error(format!("`{}` is no mail address", text.value))
                .at(text.span, "here")
                .help("write it without a name, such as \"perf@example.org\""),
        );
        None
    }
}
