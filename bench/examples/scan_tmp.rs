//! x
use corelo_core::{arena::Arena, object::Object, prepare::{prepare, Options}};
fn main(){ let c=corelo_tests::corpus::corpus().unwrap(); let k=c.kernel("amd64-6.12.117").btf(); let mut b=vec![0u8;64<<20];
 let (mut ok,mut bad)=(0,std::collections::BTreeMap::<String,u32>::new()); let mut v=vec![];
 for n in c.objects(){ let f=c.read(&n); let mut a=Arena::new(&mut b); let r=(||{ let o=Object::parse(&f).map_err(|e|format!("{e}"))?; let p=prepare(&o,Some(&k),Options::default(),&mut a).map_err(|e|format!("{e}"))?; let i=corelo_bench::prepare::link_all(&p,&mut a); Ok::<_,String>(i)})(); match r{Ok(i)=>{ok+=1; v.push((a.high_water(),i,n))},Err(e)=>*bad.entry(e).or_default()+=1}}
 v.sort(); println!("{ok} ok, {bad:?}"); for x in v.iter().rev().take(6){println!("{x:?}")} }
