//! States as tables of texts.

use serde_json::Value;
use std::fmt::Write as _;

/// A table with a title.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    /// Whether something is wrong with it.
    pub(crate) is_bad: bool,
}

/// Returns the line over the tables.
pub(crate) fn title(state: &Value) -> String {
    let members = list(&state["members"]);
    let here = members.iter().filter(|it| it["standing"] == "here").count();
    let gone = members.iter().filter(|it| it["standing"] == "gone").count();
    let ended = if state["ended"] == true { ", ended" } else { "" };
    format!("{}: {here} members, {gone} gone{ended}", plain(&state["title"]))
}

/// Returns the tables of a state: waits, sections, members, links.
pub(crate) fn tables(state: &Value) -> Vec<Table> {
    let mut tables = vec![];
    let row = |cells: Vec<String>, is_bad| Row { cells, is_bad };
    let waits: Vec<_> = list(&state["waits"])
        .iter()
        .map(|it| {
            row(
                vec![plain(&it[0]), plain(&it[1]["what"]), micros(&it[1]["for_us"])],
                it[1]["is_cycle"] == true,
            )
        })
        .collect();
    if !waits.is_empty() {
        tables.push(table("waits".to_owned(), &["node", "waits for", "for"], waits));
    }
    for section in list(&state["sections"]) {
        sections(&mut tables, section);
    }
    let members = list(&state["members"]).iter().map(|it| {
        let cells = vec![
            plain(&it["name"]),
            plain(&it["standing"]),
            plain(&it["host"]),
            it["pid"].as_u64().map_or_else(String::new, |pid| pid.to_string()),
            rate(&it["messages"]),
            plain(&it["why"]),
        ];
        row(cells, it["standing"] != "here" && it["standing"] != "left")
    });
    tables.push(table(
        "members".to_owned(),
        &["member", "standing", "host", "process", "messages", "why"],
        members.collect(),
    ));
    let links = list(&state["node"]["links"]).iter().map(|it| {
        let rates = &it["rates"];
        let cells = vec![
            plain(&it["peer"]),
            plain(&it["state"]),
            micros(&it["silence_us"]),
            rate(&rates["messages_sent"]),
            rate(&rates["messages_received"]),
            rates["messages_per_packet"].as_f64().map_or_else(String::new, |it| format!("{it:.1}")),
            plain(&it["counts"]["credit_waits"]),
            plain(&it["counts"]["packets_resent"]),
            plain(&it["waits_for"]),
        ];
        row(cells, it["is_well"] != true)
    });
    let columns = [
        "peer",
        "state",
        "heard",
        "sends",
        "receives",
        "a packet",
        "credit waits",
        "resent",
        "waits for",
    ];
    let node = plain(&state["node"]["node"]);
    tables.push(table(format!("links of {node}"), &columns, links.collect()));
    tables
}

fn sections(tables: &mut Vec<Table>, section: &Value) {
    let (node, section) = (plain(&section[0]), &section[1]);
    let name = format!("{} {} at {node}", plain(&section["kind"]), plain(&section["name"]));
    let facts = list(&section["facts"]).iter().filter(|it| it["value"] != "Nothing");
    let facts = facts.map(|it| format!("{} {}", plain(&it["name"]), cell(&it["value"])));
    let title = format!("{name}: {}", facts.collect::<Vec<_>>().join(", "));
    let mut title = Some(title);
    for of in list(&section["tables"]) {
        let columns: Vec<String> = list(&of["columns"]).iter().map(plain).collect();
        let rows = list(&of["rows"]).iter().map(|row| {
            let is_bad = list(row)
                .iter()
                .any(|it| matches!(it["State"][0].as_str(), Some("Gone" | "Trouble")));
            Row { cells: list(row).iter().map(cell).collect(), is_bad }
        });
        let named = format!("{name}: {}", plain(&of["name"]));
        tables.push(Table { title: title.take().unwrap_or(named), columns, rows: rows.collect() });
    }
    if let Some(title) = title {
        tables.push(Table { title, columns: vec![], rows: vec![] });
    }
}

fn table(title: String, columns: &[&str], rows: Vec<Row>) -> Table {
    Table { title, columns: columns.iter().map(|&it| it.to_owned()).collect(), rows }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a value as text without characters that steer a terminal.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(String::new, |rate| format!("{rate:.1}/s"))
}

fn micros(value: &Value) -> String {
    match value.as_u64() {
        None => String::new(),
        Some(us @ 0..1000) => format!("{us} us"),
        Some(us @ 1000..1_000_000) => format!("{:.1} ms", us as f64 / 1e3),
        Some(us) => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Returns a cell of a report as text.
fn cell(cell: &Value) -> String {
    let Some((kind, value)) = cell.as_object().and_then(|it| it.iter().next()) else {
        return String::new();
    };
    match kind.as_str() {
        "Micros" => micros(value),
        "Rate" => rate(value),
        "Bytes" => format!("{} B", plain(value)),
        "Share" => format!("{:.1} %", 100.0 * value.as_f64().unwrap_or_default()),
        "State" => plain(&value[1]),
        _ => plain(value),
    }
}

/// Returns all tables as text.
pub(crate) fn text(state: &Value) -> String {
    let mut text = title(state) + "\n";
    for Table { title, columns, rows } in tables(state) {
        let _ = writeln!(text, "\n{title}");
        let cells = rows.iter().map(|row| &row.cells).chain([&columns]);
        let mut widths = vec![0; columns.len()];
        for row in cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in [&columns].into_iter().chain(rows.iter().map(|row| &row.cells)) {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            if !line.trim().is_empty() {
                let _ = writeln!(text, "  {}", line.trim_end());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_a_text_that_steers_no_terminal() {
        let state = serde_json::json!({
            "title": "prog", "ended": false, "waits": [["here", {"what": "a peer", "for_us": 2_500_000, "is_cycle": false}]],
            "members": [{"name": "a\u{1b}[31m", "standing": "here", "host": "h", "pid": 7, "messages": 1.5, "why": ""}],
            "node": {"node": "n", "links": []},
            "sections": [["here", {"kind": "farm", "name": "f", "facts": [{"name": "done", "value": {"Count": 3}}],
                "tables": [{"name": "workers", "columns": ["worker", "state"],
                    "rows": [[{"Text": "worker 0"}, {"State": ["Gone", "lost"]}]]}]}]],
        });
        let text = text(&state);
        assert!(text.starts_with("prog: 1 members, 0 gone\n"), "{text}");
        for line in [
            "farm f at here: done 3",
            "  worker    state",
            "  worker 0  lost",
            "  here  a peer     2.5 s",
        ] {
            assert!(text.lines().any(|it| it == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && text.contains("a?[31m"), "{text}");
        assert!(tables(&state)[1].rows[0].is_bad);
    }
}
