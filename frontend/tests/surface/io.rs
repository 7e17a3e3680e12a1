//! Files: what is written is read again, NumPy's own files are read, and what is wrong with a file is said.

use std::fs;
use std::path::PathBuf;

use congruent::{DType, ErrorKind, Result, Tensor, io};

use crate::{AnyTensor, count, cpu};

/// A file of this test, removed when done.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("congruent-{}-{name}", std::process::id())))
    }

    fn of(name: &str, bytes: &[u8]) -> Self {
        let file = Self::new(name);
        fs::write(&file.0, bytes).unwrap();
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

#[track_caller]
fn fails<T>(result: Result<T>, op: &str, words: &[&str]) {
    let error = result.err().unwrap();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Io, op), "{error}");
    for word in words {
        assert!(error.message().contains(word), "`{word}` is missing in: {error}");
    }
}

fn same(a: &AnyTensor, b: &AnyTensor) -> bool {
    (a.dtype(), a.shape(), a.to_string()) == (b.dtype(), b.shape(), b.to_string())
}

#[test]
fn every_dtype_and_layout_goes_to_npy_and_back() {
    let file = File::new("round.npy");
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::BF16) {
        for x in [count([]), count([3]), count([2, 3]).t().unwrap(), count([2, 0, 3]), count([2; 8])] {
            let x = x.cast(dtype).unwrap();
            x.save_npy(&file.0).unwrap();
            let back = Tensor::load_npy(&cpu(), &file.0).unwrap();
            assert!(same(&back, &x), "{back} {x}");
            let bytes = fs::read(&file.0).unwrap();
            let start = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            assert_eq!(start % 64, 0);
        }
    }
    let half = count([2]).cast(DType::BF16).unwrap();
    fails(half.save_npy(&file.0), "save_npy", &["round.npy", "bf16", "save_safetensors"]);
}

/// A file as NumPy 2 writes it.
fn npy(version: u8, dict: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend((dict.len() as u16).to_le_bytes()),
        _ => bytes.extend((dict.len() as u32).to_le_bytes()),
    }
    bytes.extend(dict.as_bytes());
    bytes.extend(elements);
    bytes
}

#[test]
fn numpys_own_files_are_read() {
    let ints = |values: &[i32], big: bool| -> Vec<u8> {
        values.iter().flat_map(|value| if big { value.to_be_bytes() } else { value.to_le_bytes() }).collect()
    };
    let rows = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }          \n";
    let columns = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3), }\n";
    let read = |bytes: &[u8]| {
        let file = File::of("numpy.npy", bytes);
        let x = Tensor::load_npy(&cpu(), &file.0).unwrap();
        (x.shape().to_vec(), x.to_vec::<i32>().unwrap())
    };
    for version in [1, 2, 3] {
        assert_eq!(read(&npy(version, rows, &ints(&[1, 2, 3, 4, 5, 6], false))), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
    }
    assert_eq!(read(&npy(1, columns, &ints(&[1, 4, 2, 5, 3, 6], true))), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
    let scalar = "{'descr': '<i4', 'fortran_order': False, 'shape': (), }\n";
    assert_eq!(read(&npy(1, scalar, &ints(&[-9], false))), (vec![], vec![-9]));
}

#[test]
fn what_is_wrong_with_an_npy_file_is_said() {
    let load = |bytes: &[u8]| {
        let file = File::of("wrong.npy", bytes);
        Tensor::load_npy(&cpu(), &file.0)
    };
    let dict = |descr: &str, shape: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let op = "load_npy";
    fails(Tensor::load_npy(&cpu(), "no/such/file.npy"), op, &["no/such/file.npy", "cannot be read"]);
    fails(load(b"PK\x03\x04 a zip archive"), op, &["wrong.npy", "no .npy file"]);
    fails(load(b""), op, &["no .npy file"]);
    fails(load(b"\x93NUMPY"), op, &["cut short"]);
    fails(load(b"\x93NUMPY\x01\x00\xff\xff{"), op, &["cut short"]);
    fails(load(b"\x93NUMPY\x09\x00\x00\x00"), op, &["version 9"]);
    fails(load(&npy(1, "{}\n", &[])), op, &["without `descr`"]);
    fails(load(&npy(1, &dict("'<i2'", "(2,)"), &[0; 4])), op, &["`<i2`", "i4", "astype"]);
    fails(load(&npy(1, &dict("'<c8'", "(2,)"), &[0; 16])), op, &["`<c8`"]);
    fails(load(&npy(1, &dict("''", "(2,)"), &[])), op, &["``"]);
    fails(load(&npy(1, &dict("[('a', '<f4')]", "(2,)"), &[0; 8])), op, &["structured"]);
    fails(load(&npy(1, &dict("'<f4'", "(2, x)"), &[0; 8])), op, &["shape"]);
    fails(load(&npy(1, &dict("'<f4'", "(3,)"), &[0; 8])), op, &["8 bytes", "needs 12", "cut short"]);
    fails(load(&npy(1, &dict("'<f8'", "(4611686018427387904,)"), &[0; 8])), op, &["more than there can be"]);
    let error = load(&npy(1, &dict("'<f4'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), &[0; 4])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    fails(count([2]).save_npy("no/such/folder/x.npy"), "save_npy", &["no/such/folder/x.npy"]);
}

#[cfg(feature = "safetensors")]
#[test]
fn every_dtype_goes_to_safetensors_and_back() {
    let file = File::new("round.safetensors");
    let tensors: Vec<(String, AnyTensor)> = DType::ALL
        .into_iter()
        .flat_map(|dtype| {
            [count([]), count([2, 3]).t().unwrap(), count([0, 2])]
                .into_iter()
                .enumerate()
                .map(move |(index, x)| (format!("{dtype}.{index}"), x.cast(dtype).unwrap()))
        })
        .collect();
    io::save_safetensors(tensors.iter().map(|(name, x)| (name, x)), &file.0).unwrap();
    let back = io::load_safetensors(&cpu(), &file.0).unwrap();
    assert_eq!(back.len(), tensors.len());
    for (name, x) in &tensors {
        assert!(same(&back[name], x), "{name}");
    }
    io::save_safetensors::<congruent::AnyBackend, &str>([], &file.0).unwrap();
    assert!(io::load_safetensors(&cpu(), &file.0).unwrap().is_empty());
}

#[cfg(feature = "safetensors")]
#[test]
fn what_is_wrong_with_a_safetensors_file_is_said() {
    let load = |bytes: &[u8]| {
        let file = File::of("wrong.safetensors", bytes);
        io::load_safetensors(&cpu(), &file.0)
    };
    let archive = |header: &str, elements: usize| {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; elements]].concat()
    };
    let op = "load_safetensors";
    fails(io::load_safetensors(&cpu(), "no/such.safetensors"), op, &["no/such.safetensors", "cannot be read"]);
    fails(load(b"short"), op, &["wrong.safetensors", "no whole .safetensors file"]);
    fails(load(&archive("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4)), op, &["no whole"]);
    fails(
        load(&archive("{\"a\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4)),
        op,
        &["tensor `a`", "I16", "f32"],
    );
    let missing = io::save_safetensors([("x", &count([2]))], "no/such/folder/x.safetensors");
    fails(missing, "save_safetensors", &["no/such/folder/x.safetensors"]);
}
