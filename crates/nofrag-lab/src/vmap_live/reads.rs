//! A compressed file that is read: the kernel maps the pages that it decompresses into, with `vm_map_ram`.
//!
//! Up to 64 pages come from blocks of 1,024, which are areas aligned to their size; more are areas of their own. The
//! file stands in an image of EROFS, made by `mkfs.erofs -zlz4hc,12` (erofs-utils 1.5): of every 1,024 pages 768 begin
//! with 60 to 400 random bytes and are zeros then, so that 4 KiB of the image hold some tens of pages, and 256 repeat a
//! word, so that they hold some hundreds.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::{Advice, fadvise};

const IMAGE: &[u8] = include_bytes!("../../data/compressed.erofs.zst");

/// A mounted image with a compressed file.
pub(super) struct Compressed {
    folder: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl Compressed {
    /// Pages of the file.
    pub(super) const PAGES: u64 = 2048;

    pub(super) fn mount() -> io::Result<Compressed> {
        let name = format!("nofrag-vmap-live-reads-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let [image, mounted] = ["image", "mounted"].map(|name| folder.join(name));
        fs::create_dir_all(&mounted)?;
        let mut compressed = Compressed { folder, file: None, buffer: vec![0; 1 << 20] };
        fs::write(&image, zstd::decode_all(IMAGE)?)?;
        let mut mount = Command::new("mount");
        let done =
            mount.args(["-t", "erofs", "-o", "loop,ro"]).args([&image, &mounted]).output()?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(io::Error::other(why));
        }
        compressed.file = Some(File::open(mounted.join("file"))?);
        Ok(compressed)
    }

    /// Reads the whole file, of which no page is in memory any more.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let mut file = self.file.as_ref().expect("a mounted one has a file");
        fadvise(file, 0, None, Advice::DontNeed)?;
        file.rewind()?;
        while file.read(&mut self.buffer)? > 0 {}
        Ok(())
    }
}

impl Drop for Compressed {
    fn drop(&mut self) {
        self.file = None;
        // What was not mounted is not unmounted; what stays does no harm.
        let _ = Command::new("umount").arg(self.folder.join("mounted")).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
