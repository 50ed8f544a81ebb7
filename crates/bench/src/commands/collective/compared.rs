//! Calls in virtual time beside closed forms, and the chosen algorithm beside the best one.

use chunkcomm_group::Algorithm;
use clap::Args;

use super::CollectiveArgs;
use super::formulas::Costs;
use super::world::{algorithms, timed};
use crate::commands::Verdict;
use crate::failure::Failure;
use crate::harness::calls::{CallKind, Operation};
use crate::harness::slices::name_of;
use crate::lan::{LanArgs, load};
use crate::options::values;
use crate::table::{Column, Form, Row, Table, column, write_out};

/// Bytes of the calls that stand beside closed forms: 16 MiB.
const FORM_BYTES: usize = 16 << 20;

/// Ranks of the calls that stand beside closed forms.
const FORM_RANKS: [usize; 2] = [16, 64];

/// Sizes at which the chosen algorithm stands beside the best.
const SIZES: [usize; 6] = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// Ranks at which the chosen algorithm stands beside the best.
const RANKS: [usize; 3] = [4, 16, 64];

/// Operations at which the chosen algorithm stands beside the best.
const OPERATIONS: [Operation; 3] = [Operation::Broadcast, Operation::Reduce, Operation::AllReduce];

/// Options of calls beside closed forms, and beside the best algorithm.
#[derive(Debug, Args)]
pub(super) struct ComparedArgs {
    /// Virtual time: broadcasts of 16 MiB beside the closed forms
    #[arg(long)]
    forms: bool,
    /// Virtual time: the chosen algorithm beside the best by name, over operations, sizes and ranks
    #[arg(long)]
    choice: bool,
    /// Largest vector of --forms and --choice
    #[arg(long, value_name = "B", default_value = "64MiB", value_parser = values::bytes)]
    size_max: usize,
    /// Most ranks of --forms and --choice
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::count)]
    ranks_max: u64,
    /// Of --forms and --choice one row alone: the worst ratio of each table
    #[arg(long)]
    summary: bool,
}

impl ComparedArgs {
    /// Whether tables are asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.forms || self.choice
    }
}

/// Columns of calls beside their closed forms.
const FORM_COLUMNS: [Column; 6] = [
    column("algorithm", "algorithm", 10),
    column("ranks", "ranks", 5),
    column("payload_bytes", "bytes", 9),
    column("seconds", "seconds", 9),
    column("form_seconds", "form s", 9),
    column("ratio", "ratio", 6),
];

/// Columns of the chosen algorithm beside the best.
const CHOICE_COLUMNS: [Column; 7] = [
    column("op", "operation", 10),
    column("ranks", "ranks", 5),
    column("payload_bytes", "bytes", 9),
    column("seconds", "auto s", 9),
    column("best_seconds", "best s", 9),
    column("best_algorithm", "best", 10),
    column("ratio", "ratio", 6),
];

/// Makes the tables that are asked for.
pub(super) fn run(args: &CollectiveArgs) -> Result<Verdict, Failure> {
    let ComparedArgs { forms, choice, summary, .. } = args.compared;
    let Some(spec) = args.lan.spec().filter(|_| args.against.is_none()) else {
        let why = "--forms, --choice: allowed with --lan virtual:NAME, without --against";
        return Err(Failure::Refused(why.to_owned()));
    };
    args.lan.check(&args.common)?;
    let tables = Tables { args, spec };
    let form_error = forms.then(|| tables.forms()).transpose()?;
    let auto_ratio = choice.then(|| tables.choice()).transpose()?;
    if summary {
        tables
            .new_row()
            .set("form_error", form_error)
            .set("auto_ratio", auto_ratio)
            .print(args.common.json);
    }
    Ok(Verdict::Fine)
}

struct Tables<'a> {
    args: &'a CollectiveArgs,
    spec: &'a str,
}

impl Tables<'_> {
    fn new_row(&self) -> Row {
        let mut row = Row::default();
        row.set("bench", "collective")
            .set("transport", "virtual")
            .set("runtime", "virtual")
            .set("lan", self.args.lan.lan.as_str());
        row
    }

    fn seconds(&self, kind: CallKind, ways: &[Algorithm]) -> Result<Vec<f64>, Failure> {
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        Ok(timed(&lan, self.spec, kind, ways)?.0)
    }

    /// Returns the largest difference of a broadcast from its closed form, as a part of that.
    fn forms(&self) -> Result<f64, Failure> {
        let costs = Costs::of(&load(self.spec)?)
            .ok_or_else(|| Failure::broken("reading the world", "it has no host or no segment"))?;
        let ways = [Algorithm::Chain, Algorithm::Binomial];
        let ranks: Vec<_> =
            FORM_RANKS.iter().filter(|it| **it as u64 <= self.args.compared.ranks_max).collect();
        let mut table = self.table(&FORM_COLUMNS);
        let mut worst = 0.0_f64;
        for &&ranks in &ranks {
            let bytes = FORM_BYTES.min(self.args.compared.size_max);
            let kind = CallKind { operation: Operation::Broadcast, bytes, ranks };
            for (way, seconds) in ways.into_iter().zip(self.seconds(kind, &ways)?) {
                let form = costs.seconds(kind, way).unwrap_or(f64::NAN);
                let ratio = seconds / form;
                worst = worst.max((ratio - 1.0).abs());
                let mut row = self.row(kind);
                row.set("algorithm", way.name())
                    .set("seconds", seconds)
                    .set("form_seconds", form)
                    .set("ratio", ratio);
                table.add(row);
            }
        }
        self.end_table();
        Ok(worst)
    }

    /// Returns the least ratio of the best time to that of the chosen algorithm.
    fn choice(&self) -> Result<f64, Failure> {
        let kinds = self.kinds();
        let mut table = self.table(&CHOICE_COLUMNS);
        let mut worst = f64::INFINITY;
        for kind in kinds {
            let named = algorithms(kind.operation);
            let ways = [&[Algorithm::Auto], named].concat();
            let seconds = self.seconds(kind, &ways)?;
            let best = named.iter().zip(&seconds[1..]);
            let Some((best, least)) = best.min_by(|one, other| one.1.total_cmp(other.1)) else {
                continue;
            };
            let ratio = least / seconds[0];
            worst = worst.min(ratio);
            let mut row = self.row(kind);
            row.set("algorithm", "auto")
                .set("seconds", seconds[0])
                .set("best_algorithm", best.name())
                .set("best_seconds", *least)
                .set("ratio", ratio);
            table.add(row);
        }
        self.end_table();
        Ok(worst)
    }

    fn kinds(&self) -> Vec<CallKind> {
        let mut kinds = Vec::new();
        for operation in OPERATIONS {
            for ranks in
                RANKS.into_iter().filter(|ranks| *ranks as u64 <= self.args.compared.ranks_max)
            {
                let sizes = SIZES.into_iter().filter(|bytes| *bytes <= self.args.compared.size_max);
                kinds.extend(sizes.map(|bytes| CallKind { operation, bytes, ranks }));
            }
        }
        kinds
    }

    fn row(&self, kind: CallKind) -> Row {
        let mut row = self.new_row();
        row.set("op", name_of(kind.operation))
            .set("ranks", kind.ranks)
            .set("payload_bytes", kind.bytes);
        row
    }

    fn table(&self, columns: &[Column]) -> Table {
        let form = Form::of(self.args.common.json);
        Table::new(columns, if self.args.compared.summary { Form::Kept } else { form })
    }

    fn end_table(&self) {
        if !self.args.compared.summary && !self.args.common.json {
            write_out("\n");
        }
    }
}
