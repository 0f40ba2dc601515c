//! The linker script puts defmt's strings at addresses of 16 bits, as on a device; a program at a random address would
//! change them, so it has a fixed one.
fn main() {
    let script = std::path::Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("defmt-host.x");
    println!("cargo:rerun-if-changed=defmt-host.x");
    // GNU ld: lld knows no INSERT behind an INCLUDE.
    println!("cargo:rustc-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-link-arg=-no-pie");
    println!("cargo:rustc-link-arg=-Wl,-T,{}", script.display());
}
