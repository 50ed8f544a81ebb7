//! The tables on a terminal, until `q` or ctrl-c.

use crate::client::Client;
use crate::tables::{self, Table};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use serde_json::Value;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// Time between two looks at the keyboard.
const LOOK: Duration = Duration::from_millis(100);

/// Widest column.
const COLUMN_MAX: usize = 48;

/// Shows the states of a page until the user ends it.
///
/// # Errors
///
/// The page refuses, or the terminal fails.
pub(crate) fn show(client: &Client) -> io::Result<()> {
    let mut states = client.states()?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        loop {
            let next = states.next();
            let is_over = !matches!(next, Ok(Some(_)));
            if sender.send(next).is_err() || is_over {
                return;
            }
        }
    });
    let mut terminal = ratatui::init();
    let shown = draw_all(&mut terminal, &receiver);
    ratatui::restore();
    shown
}

fn draw_all(
    terminal: &mut DefaultTerminal,
    states: &Receiver<io::Result<Option<Value>>>,
) -> io::Result<()> {
    let (mut lines, mut head, mut top) = (Vec::new(), "waiting for the first state".to_owned(), 0);
    loop {
        loop {
            match states.try_recv() {
                Ok(Ok(Some(state))) => {
                    head = tables::title(&state);
                    lines = tables::tables(&state).iter().flat_map(shown).collect();
                }
                Ok(Ok(None)) => head.push_str(" (ended)"),
                Ok(Err(error)) => head.push_str(&format!(" (ended: {error})")),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        terminal.draw(|frame| {
            let [first, rest, last] = ratatui::layout::Layout::vertical([
                Constraint::Length(1),
                Constraint::Min(1),
                Constraint::Length(1),
            ])
            .areas(frame.area());
            top = top.min(lines.len().saturating_sub(usize::from(rest.height)));
            let bold = Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED);
            frame.render_widget(Paragraph::new(head.as_str()).style(bold), first);
            let end = lines.len().min(top + usize::from(rest.height));
            frame.render_widget(Paragraph::new(lines[top..end].to_vec()), rest);
            frame.render_widget(
                Paragraph::new("q ends; arrows, page up and page down scroll"),
                last,
            );
        })?;
        if !event::poll(LOOK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Down => top += 1,
            KeyCode::Up => top = top.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => top += 20,
            KeyCode::PageUp => top = top.saturating_sub(20),
            KeyCode::Home => top = 0,
            _ => {}
        }
    }
}

/// Returns a table as lines.
fn shown(table: &Table) -> Vec<Line<'static>> {
    let Table { title, columns, rows } = table;
    let mut widths = vec![0; columns.len()];
    for row in rows.iter().map(|row| &row.cells).chain([columns]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width).min(COLUMN_MAX);
        }
    }
    let line = |cells: &[String], style| {
        let cells = cells.iter().zip(&widths).map(|(cell, &width)| {
            let cut: String = cell.chars().take(width).collect();
            format!("{cut:width$}")
        });
        Line::styled(cells.collect::<Vec<_>>().join("  "), style)
    };
    let mut lines = vec![
        Line::default(),
        Line::styled(title.clone(), Style::new().add_modifier(Modifier::BOLD)),
    ];
    if !columns.is_empty() {
        lines.push(line(columns, Style::new().add_modifier(Modifier::DIM)));
    }
    let bad = Style::new().fg(Color::Red);
    lines.extend(
        rows.iter().map(|row| line(&row.cells, if row.is_bad { bad } else { Style::new() })),
    );
    lines
}
