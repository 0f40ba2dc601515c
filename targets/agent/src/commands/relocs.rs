//! `corelo relocs`: every CO-RE relocation, and what it does.

use corelo_core::prepare::Relocation;
use corelo_core::relo::decision::{TargetType, Verdict};
use corelo_core::relo::format::LocalSpec;
use corelo_core::relo::patch::Patched;
use corelo_loader::report::{RelocationReport, btf_name, candidates};
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::read_file;
use crate::output::{Out, hex, text};
use crate::prepare::{KernelSource, Ready, prepare};

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::new(options);
    with_buffer(options.arena, |buffer| {
        let ready = prepare(&bytes, &file, &kernel, buffer)?;
        let mut out = Out::new();
        let mut has_failed = false;
        for relocation in ready.prepared.relocations() {
            has_failed |= relocation.outcome.is_err();
            let row = Row::new(&ready, &relocation);
            if options.json { out.json(&row.json())? } else { out.line(row.line())? }
        }
        out.flush()?;
        if has_failed { Err(Failure::Reported) } else { Ok(()) }
    })
}

/// What is shown of a relocation.
struct Row {
    program: Option<String>,
    section: String,
    insn_idx: u32,
    kind: String,
    spec: Option<String>,
    candidates: Vec<Value>,
    status: &'static str,
    local_value: Option<u64>,
    target_value: Option<u64>,
    insn: String,
    error: Option<String>,
}

impl Row {
    fn new(ready: &Ready<'_>, relocation: &Relocation<'_>) -> Self {
        let prepared = &ready.prepared;
        let decision = relocation.decision;
        let function = relocation.function.and_then(|number| prepared.declared().function(number));
        let (status, error) = match relocation.outcome {
            Ok(Patched::Value) => ("patched", None),
            Ok(Patched::Poison) => ("poisoned", None),
            Err(_) => ("failed", Some(RelocationReport { prepared, relocation }.to_string())),
        };
        Self {
            program: function.map(|function| text(prepared.function_name(function))),
            section: text(prepared.object().section_name(relocation.section)),
            insn_idx: relocation.insn_idx,
            kind: relocation.relo.kind.to_string(),
            spec: prepared.local().map(|local| LocalSpec::new(local, &relocation.relo).to_string()),
            candidates: candidate_list(ready, relocation),
            status,
            local_value: (decision.verdict() != Verdict::BadSpec).then(|| decision.local_value()),
            target_value: (decision.verdict() == Verdict::Value).then(|| decision.target_value()),
            insn: hex(relocation.insns().as_bytes()),
            error,
        }
    }

    fn json(self) -> Value {
        json!({
            "program": self.program,
            "section": self.section,
            "insn_idx": self.insn_idx,
            "kind": self.kind,
            "spec": self.spec,
            "candidates": self.candidates,
            "status": self.status,
            "local_value": self.local_value,
            "target_value": self.target_value,
            "insn": self.insn,
            "error": self.error,
        })
    }

    /// What each candidate lacks, as `--json` has it one by one.
    fn why_poisoned(&self) -> String {
        let Some(first) = self.candidates.first() else { return "no candidate".into() };
        let result = |candidate: &Value| candidate["result"].as_str().unwrap_or_default().to_owned();
        let others = self.candidates.iter().skip(1).map(result).filter(|other| *other != result(first));
        let mut reasons = vec![result(first)];
        for other in others {
            if !reasons.contains(&other) {
                reasons.push(other);
            }
        }
        reasons.join(", ")
    }

    fn line(&self) -> String {
        let program = self.program.as_deref().unwrap_or("-");
        let spec = self.spec.as_deref().unwrap_or("?");
        let value = |value: Option<u64>| value.map_or_else(|| "-".into(), |value| value.to_string());
        let (local, target) = (value(self.local_value), value(self.target_value));
        let mut line = format!(
            "{program} ({}) +{}: {} {spec}: {}, {local} -> {target}, {} candidates, {}",
            self.section,
            self.insn_idx,
            self.kind,
            self.status,
            self.candidates.len(),
            self.insn
        );
        if let Some(error) = &self.error {
            line.push_str(": ");
            line.push_str(error);
        } else if self.status == "poisoned" {
            line.push_str(": ");
            line.push_str(&self.why_poisoned());
        }
        line
    }
}

/// The candidates in vmlinux, each with what it gives alone; of modules, only what was taken.
fn candidate_list(ready: &Ready<'_>, relocation: &Relocation<'_>) -> Vec<Value> {
    let tried = candidates(&ready.prepared, &relocation.relo);
    let mut list: Vec<Value> =
        tried.map(|tried| json!({ "id": tried.id.0, "btf": "vmlinux", "result": tried.to_string() })).collect();
    if let (true, Some(TargetType { id, btf })) = (list.is_empty(), relocation.decision.target()) {
        list.push(json!({ "id": id.0, "btf": btf_name(btf, ready.modules.names()), "result": "taken" }));
    }
    list
}
