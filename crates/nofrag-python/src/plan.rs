//! The tasks of a sweep, for engines that hand them out: `nofrag.ray`.

use std::path::PathBuf;

use nofrag_lab::sweep;
use pyo3::prelude::*;

use crate::error;

/// A plan of `nofrag sweep`.
#[pyclass(frozen, module = "nofrag")]
pub(crate) struct Plan(sweep::Plan);

#[pymethods]
impl Plan {
    #[new]
    fn new(path: PathBuf) -> PyResult<Plan> {
        sweep::Plan::read(&path).map(Plan).map_err(error)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The recording or scenario of a task.
    fn name(&self, task: usize) -> PyResult<String> {
        self.checked(task)?;
        Ok(self.0.name(task).to_owned())
    }

    /// Holds the events of a task's recording in memory, for the tasks of it that follow.
    fn hold(&self, py: Python<'_>, task: usize) -> PyResult<()> {
        self.checked(task)?;
        py.detach(|| self.0.hold(task)).map_err(error)
    }

    /// Carries a task out, and returns the line that `nofrag sweep merge` writes of it.
    fn line(&self, py: Python<'_>, task: usize) -> PyResult<String> {
        self.checked(task)?;
        py.detach(|| self.0.line(task)).map_err(error)
    }
}

impl Plan {
    fn checked(&self, task: usize) -> PyResult<()> {
        match task < self.0.len() {
            true => Ok(()),
            false => Err(error(format!("the plan has {} tasks, and no {task}", self.0.len()))),
        }
    }
}
