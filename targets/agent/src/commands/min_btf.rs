//! `corelo min-btf`: the few types that objects need.

use corelo_core::arena::Arena;
use corelo_core::min_btf::{MinimalError, minimal};
use corelo_core::object::Object;
use corelo_core::prepare::Needs;
use corelo_core::prepare::{Options as PrepareOptions, Plan, PrepareError};
use corelo_loader::report::ObjectReport;

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::files;
use crate::input::{read_btf, read_file};

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (Some(btf_path), Some(out)) = (&options.btf, &options.out) else {
        return Err(Failure::Usage("--btf FILE or -o OUT is missing".into()));
    };
    let mut files = Vec::new();
    for path in [&options.file].into_iter().chain(&options.more_files) {
        files.push((path.display().to_string(), read_file(path)?));
    }
    let btf = read_btf(btf_path)?;
    let base = options.base.as_deref().map(read_btf).transpose()?;
    let (kernel, module) = match &base {
        Some(base) => (base, Some(&*btf)),
        None => (&btf, None),
    };
    with_buffer(options.arena, |buffer| {
        let mut arena = Arena::new(buffer);
        let mut plans = Vec::new();
        for (file, bytes) in &files {
            plans.push(plan(file, bytes, &mut arena)?);
        }
        let needs: Vec<Needs<'_>> = plans.iter().map(Plan::needs).collect();
        let made = minimal(&needs, kernel, module, &mut arena).map_err(|error| match error {
            MinimalError::Arena(full) => Failure::Arena(full),
            MinimalError::ByteOrder { object } => Failure::Input(format!(
                "{} and {} have different byte orders",
                files.get(object).map_or("", |(file, _)| file),
                btf_path.display()
            )),
            error => Failure::Input(format!("{}: {error}", btf_path.display())),
        })?;
        files::write(out, made.blob).map_err(|error| Failure::Input(format!("cannot write {}: {error}", out.display())))
    })
}

fn plan<'a>(file: &str, bytes: &'a [u8], arena: &mut Arena<'a>) -> Result<Plan<'a>, Failure> {
    let object = Object::parse(bytes)
        .map_err(|error| Failure::Input(format!("{file}: {}", ObjectReport { object: None, error })))?;
    Plan::new(&object, PrepareOptions::default(), arena).map_err(|error| match error {
        PrepareError::Arena(full) => Failure::Arena(full),
        PrepareError::Object(error) => {
            Failure::Job(format!("{file}: {}", ObjectReport { object: Some(&object), error }))
        }
        error => Failure::Job(format!("{file}: {error}")),
    })
}
