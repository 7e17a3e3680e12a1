//! The op families, one file each.

mod arg_reduce;
mod attention;
mod binary;
mod compare;
mod conv;
mod copy;
mod fold;
mod index;
mod linear;
mod matmul;
mod norm;
mod order;
mod pool;
mod random;
mod reduce;
mod scan;
mod scatter;
mod sort;
mod statistic;
mod unary;
