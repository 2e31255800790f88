//! The native half of the Python package `nofrag`: arguments in, the libraries' results out.
//!
//! Tables go out as Arrow streams (`table`), results with many levels as JSON text that Python takes apart, and every
//! error as `nofrag.Error` with the library's own sentence, which says what to do. Whatever takes longer than a moment
//! runs without the interpreter's lock. Files, bottom up: `table`, `recording`, `lab`, `plan`, `allocators`.

mod allocators;
mod lab;
mod plan;
mod recording;
mod table;

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    nofrag,
    Error,
    PyException,
    "What was asked for cannot be had; the text says what to do."
);
create_exception!(nofrag, NoMemory, Error, "An allocator has nothing that fits the request.");

/// Makes the Python error of a library's.
fn error(why: impl Display) -> PyErr {
    Error::new_err(why.to_string())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("NoMemory", module.py().get_type::<NoMemory>())?;
    module.add_class::<table::Table>()?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<allocators::Ranges>()?;
    module.add_class::<allocators::Pages>()?;
    module.add_function(wrap_pyfunction!(recording::open, module)?)?;
    module.add_function(wrap_pyfunction!(lab::replay, module)?)?;
    module.add_function(wrap_pyfunction!(lab::run, module)?)?;
    module.add_function(wrap_pyfunction!(lab::scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(lab::policies, module)?)?;
    module.add_function(wrap_pyfunction!(lab::default_policies, module)?)?;
    module.add_function(wrap_pyfunction!(lab::host, module)?)
}
