//! What names stand for in a cell: which axes a name needs, and the context to render with.

use crate::base::diag::Diagnostic;
use crate::config::matrix::Matrix;
use crate::config::template::{Context, Expr};

use super::cell::PlanAxis;

/// Resolves names of one matrix over the axes of one plan.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub matrix: &'a Matrix,
    pub axes: &'a [PlanAxis],
}

impl<'a> Scope<'a> {
    /// The axes that these names depend on, derived axes followed to their sources.
    pub fn axes_of(&self, mentions: &[String]) -> Vec<usize> {
        let mut axes = Vec::new();
        for mention in mentions {
            self.collect(root(mention), &mut axes);
        }
        axes.sort_unstable();
        axes.dedup();
        axes
    }

    fn collect(&self, name: &str, axes: &mut Vec<usize>) {
        let name = if name == "facts" { "machine" } else { name };
        if let Some(axis) = self.axes.iter().position(|axis| axis.name == name) {
            axes.push(axis);
        } else if let Some(derived) = self.matrix.derived.iter().find(|d| d.name.value == name) {
            for mention in &derived.expr.mentions {
                self.collect(root(mention), axes);
            }
        }
    }

    /// What the given axes, and the derived axes and facts that follow from them, stand for in a
    /// cell. The error is a derived axis that cannot be computed.
    pub fn context(&self, cell: &[u16], axes: &[usize]) -> Result<Context, Diagnostic> {
        let mut context = Context::default();
        for &axis in axes {
            let axis_of = &self.axes[axis];
            let value = &axis_of.values[usize::from(cell[axis])];
            context.set(&axis_of.name, minijinja_value(value));
            if axis_of.name == "machine"
                && let Some(machine) = self.matrix.machine(&value.label())
            {
                context.set("facts", machine.facts.clone());
            }
        }
        for derived in &self.matrix.derived {
            let needs = self.axes_of(&derived.expr.mentions);
            if needs.iter().all(|axis| axes.contains(axis)) {
                let value = self
                    .matrix
                    .engine
                    .value(&derived.expr, &context)
                    .map_err(|reason| self.failed(&derived.expr, cell, axes, &reason))?;
                context.set(&derived.name.value, value);
            }
        }
        Ok(context)
    }

    /// Whether the expression holds in a cell.
    pub fn test(&self, expr: &Expr, cell: &[u16], axes: &[usize]) -> Result<bool, Diagnostic> {
        let context = self.context(cell, axes)?;
        self.matrix
            .engine
            .test(expr, &context)
            .map_err(|reason| self.failed(expr, cell, axes, &reason))
    }

    fn failed(&self, expr: &Expr, cell: &[u16], axes: &[usize], reason: &str) -> Diagnostic {
        Diagnostic::error(format!("this expression cannot be computed: {reason}"))
            .at(expr.span, "here")
            .help(format!("in the cell {}", self.name_of(cell, axes)))
    }

    /// The part of a cell's name that the given axes make.
    pub fn name_of(&self, cell: &[u16], axes: &[usize]) -> String {
        axes.iter()
            .map(|&axis| {
                let axis_of = &self.axes[axis];
                format!(
                    "{}={}",
                    axis_of.name,
                    axis_of.labels[usize::from(cell[axis])]
                )
            })
            .collect::<Vec<_>>()
            .join(",")
    }
}

fn minijinja_value(value: &crate::config::value::AxisValue) -> crate::config::template::AnyValue {
    value.into()
}

fn root(mention: &str) -> &str {
    mention.split('.').next().unwrap_or(mention)
}
