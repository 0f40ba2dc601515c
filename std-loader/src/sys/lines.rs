//! Text that comes in pieces, cut into lines without the heap.

#![forbid(unsafe_code)]

/// The longest line that is kept whole; of longer ones the start is handed out. Symbols of /proc/kallsyms have at most 512
/// bytes, and kernel configurations are written with lines below 4 KiB.
const MAX_LINE: usize = 4096;

/// The part of a line that has come so far.
pub(crate) struct Lines {
    rest: heapless::Vec<u8, MAX_LINE>,
}

impl Lines {
    pub(crate) const fn new() -> Lines {
        Lines { rest: heapless::Vec::new() }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.rest.len();
        // Never more than fits: what is cut off is the end of an overlong line.
        let _ = self.rest.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Takes the next piece and hands out each line that ends in it, without its line feed.
    pub(crate) fn push<E>(&mut self, mut piece: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&piece[..end], &piece[end + 1..]);
            piece = after;
            if self.rest.is_empty() {
                each(&line[..line.len().min(MAX_LINE)])?;
            } else {
                self.keep(line);
                let result = each(&self.rest);
                self.rest.clear();
                result?;
            }
        }
        self.keep(piece);
        Ok(())
    }

    /// The last line, where the text does not end with a line feed.
    pub(crate) fn finish<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let result = each(&self.rest);
        self.rest.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut lines = Lines::new();
        let mut each = |line: &[u8]| {
            out.push(line.to_vec());
            Ok::<(), ()>(())
        };
        for piece in text.chunks(piece) {
            lines.push(piece, &mut each).unwrap();
        }
        lines.finish(&mut each).unwrap();
        out
    }

    #[test]
    fn pieces_of_every_size_give_the_same_lines() {
        let text = b"first\n\nthird line\nlast";
        let want: Vec<&[u8]> = vec![b"first", b"", b"third line", b"last"];
        for piece in 1..=text.len() {
            assert_eq!(cut(text, piece), want, "pieces of {piece}");
        }
        assert_eq!(cut(b"a\n", 1), [b"a"]);
        assert_eq!(cut(b"", 1), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn an_overlong_line_is_cut_and_the_next_is_whole() {
        let mut text = vec![b'x'; 10_000];
        text.extend(b"\nnext\n");
        for piece in [100, 4096, 20_000] {
            let lines = cut(&text, piece);
            assert_eq!((lines[0].len(), &lines[1][..]), (MAX_LINE, &b"next"[..]));
        }
    }

    #[test]
    fn an_error_ends_it() {
        let mut seen = 0;
        let result = Lines::new().push(b"a\nb\nc\n", |line| {
            seen += 1;
            if line == b"b" { Err("b") } else { Ok(()) }
        });
        assert_eq!((result, seen), (Err("b"), 2));
    }
}
