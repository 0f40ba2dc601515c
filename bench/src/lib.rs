//! What the benches and the reports share: the workloads, the objects, the numbers made of measurements.

pub mod arena;
pub mod figures;
pub mod markdown;
pub mod objects;
pub mod peer;
pub mod picture;
pub mod plot;
pub mod prepare;
pub mod report;
pub mod run;
pub mod stats;

use corelo_core::prepare::Options;
use corelo_tests::corpus::Corpus;

/// The object of the corpus that takes the most arena, of those that can be prepared against `kernel`: its name and its
/// bytes. Programs that this kernel has no target for are left out of it.
///
/// # Panics
/// If none can.
#[must_use]
pub fn largest_object(corpus: &Corpus, kernel: &[u8]) -> (String, Vec<u8>) {
    let mut buffer = vec![0u8; 64 << 20];
    let objects = corpus.objects().into_iter().filter_map(|name| {
        let file = corpus.read(&name);
        Some((prepare::arena_of(&file, kernel, Options::default(), &mut buffer)?, name, file))
    });
    let largest = objects.max_by_key(|(bytes, ..)| *bytes);
    let (_, name, file) = largest.unwrap_or_else(|| panic!("no object of the corpus can be prepared"));
    (name, file)
}
